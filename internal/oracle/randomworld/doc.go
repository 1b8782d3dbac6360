// Package randomworld makes up worlds, changes to them and packets, for tests
// that hold plan and the dataplanes against the oracle.
//
// Everything is drawn from a Topology, the addresses that a lab really has, so
// that every packet can be sent for real and every endpoint can answer. The
// draws favour trouble: Services that claim the same addresses and node ports,
// endpoints that slices disagree about, ranges that admit nobody, and packets
// that just miss. The same source of randomness gives the same results.
//
// Where two readings of the semantics are both defensible, worlds stay clear
// of the difference: an endpoint has the same node and hints in all slices of
// a Service, a Node object has addresses of all families of the topology, and
// a Service has each port and node port once per protocol.
package randomworld
