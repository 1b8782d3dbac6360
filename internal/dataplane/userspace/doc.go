// Package userspace is a dataplane in which the proxy itself forwards the connections of
// TCP and UDP: it accepts them, chooses an endpoint, tries the next one if that refuses
// or does not answer, and copies.
//
// The table of nftables mode leads connections to a few sockets of the proxy, instead of
// to endpoints. Refusals, source ranges and unknown ports stay with the table, and so
// does SCTP as a whole. The port that a connection arrives at tells what only the table
// can know: which of a frontend's routes it takes, and whether the endpoint is to see
// the client's address or the node's. Which frontend it is for, connection tracking
// tells.
package userspace
