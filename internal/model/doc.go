// Package model is what Sluice knows about the cluster: Services, the
// endpoints behind them, this node and the service CIDRs.
//
// Everything here is a small typed value: addresses are netip values, names
// are interned strings, and no Kubernetes API object is kept. Values are
// immutable once they are handed to a State; a change is a new value under the
// old name. A State has one writer and counts its changes as a revision.
//
// The package decides nothing about what a Service means: that is plan's job.
package model
