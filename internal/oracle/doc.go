// Package oracle says what must happen to a packet, given everything that is
// known about the cluster and this node.
//
// It is the yardstick for tests: a direct reading of the service semantics,
// with a loop over all objects for every question, nothing remembered between
// two packets and no thought for speed. It shares the configuration type with
// plan and nothing else, so that a mistake has to be made twice to go unseen.
//
// A packet here is the first of a connection. What happens beside the packets
// (health checks, clearing conntrack) and how evenly endpoints are chosen is
// not the oracle's.
package oracle
