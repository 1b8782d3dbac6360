// Package diff says in words what differs between two plans of a node: which
// frontends come, go and change, and how, and what else would be different.
//
// It compares what was planned, and knows nothing of where the plans come from.
package diff
