// Package dataplane is the interface that every mode implements: it programs
// what plan desires into the kernel. No Kubernetes decision is made at or below
// this interface. Commits and OfFamily are for the modes' own use.
package dataplane
