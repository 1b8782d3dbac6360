// Package localroute leads packets to the node by routes of a table of its own, so that the node
// handles addresses that it does not have: it does not answer ARP for them, and nothing can listen
// there.
package localroute
