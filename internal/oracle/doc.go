// Package oracle decides what must happen to a packet, given everything that is
// known about the cluster and this node.
//
// It is the reference for tests: a direct reading of the service semantics,
// with a loop over all objects for every question, no state between two packets
// and no optimisation. It shares the configuration type with plan and nothing
// else, so that a mistake has to be made twice to go unnoticed.
//
// A packet here is the first of a connection. Health checks, connection
// tracking and how evenly endpoints are chosen are out of scope.
package oracle
