// Package offload has the kernel forward established connections of Services by flow tables (dataplane.Offloader),
// if that is wanted: it follows the frontends, and the devices at which packets come in, and counts the connections
// that are forwarded so. It is no matter of correctness: what is in no flow table takes the rules.
//
// Devices are those of the node's addresses, or those through which the routing table leads to endpoints as well.
// They are looked for again when the kernel reports a change of devices, addresses, routes or rules, at most once
// a second, and less often if that takes long: endpoints are asked for one by one. An endpoint that is gone may keep
// its device until all are asked for again.
package offload
