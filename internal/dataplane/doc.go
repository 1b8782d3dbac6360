// Package dataplane is the interface that every mode implements: it takes what
// plan desires and makes the kernel do it. No Kubernetes decision is taken at
// or below this interface.
package dataplane
