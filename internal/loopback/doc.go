// Package loopback serves node ports on loopback addresses, for programs on the
// node itself.
//
// The kernel could be told to, but only by a setting that lets neighbours on the
// network reach everything that listens on 127.0.0.1. So this process listens
// there instead, and relays each connection to an endpoint. Who talks is the
// node, and so the endpoints are those that the node reaches.
//
// What it promises:
//
//   - The engine never waits. NodePorts runs in a goroutine of its own and only
//     learns from the engine which frontends to look at again.
//   - Only who comes through the loopback interface is served, whatever the
//     settings of the kernel are.
//   - A port that cannot be listened on is reported once, with a remedy, and
//     tried again with a back-off. All others are served meanwhile.
//   - Nothing is served before the kernel was programmed for the first time.
//
// It does not serve SCTP.
package loopback
