// Package leftover is what ipvs mode leaves in the kernel, that of upstream's kube-proxy and that of
// Sluice: how it is recognized, and how it is drained and removed when another proxy or mode takes
// over.
package leftover
