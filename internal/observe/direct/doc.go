// Package direct keeps direct return working: it finds out to which nodes packets can be handed, and tells
// the dataplane and plan.
//
// A node is used if it is on the link of the device, answers there, and a probe came back: a datagram with a
// foreign source that this node sends to the other one, which sends it back as it is. Networks that drop
// packets with foreign sources drop it on one of the two ways. Nodes without the feature, and those that do not
// know this node as another one yet, do not send it back either.
package direct
