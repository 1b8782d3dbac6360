// Package nodeproblem knows what can be wrong with a node, so that Services do not work though
// all their rules are in the kernel: forwarding is switched off, a firewall drops the packets,
// the connection tracking table is full, the configuration does not fit the cluster.
//
// A packet passes the chains of every table, and a drop in one of them is final. A chain of
// another program drops connections for certain if nothing in it, or in chains that it leads to,
// can accept them; it may drop them if conditions decide that are not interpreted. Only what is
// certain is an Obstacle, which changes verdicts on Services. Everything is an advisory: what is in the way, whom it
// affects, and the command that mends it.
//
// It only reads. It works in the network namespace of the caller's thread.
package nodeproblem
