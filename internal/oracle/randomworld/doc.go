// Package randomworld generates random worlds, changes to them and packets, for
// tests that compare plan and the dataplanes with the oracle.
//
// Everything is drawn from a Topology, the addresses that a lab really has, so
// that every packet can be sent and every endpoint can answer. Edge cases are
// frequent: Services that claim the same addresses and node ports, endpoints
// about which slices disagree, ranges that admit no client, and packets that
// narrowly miss. The same random source gives the same results.
//
// Worlds avoid cases in which two readings of the semantics are both
// defensible: an endpoint has the same node and hints in all slices of a
// Service, a Node object has addresses of all families of the topology, and a
// Service has each port and node port once per protocol.
package randomworld
