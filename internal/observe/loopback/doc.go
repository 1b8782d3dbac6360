// Package loopback serves node ports on loopback addresses, for processes on
// the node itself.
//
// The kernel could do that, but only with a setting (route_localnet) that lets
// neighbours on the network reach every listener on 127.0.0.1. So this process
// listens there instead, and relays each connection to an endpoint. The client
// is the node, so the endpoints are those that the node reaches.
//
// Guarantees:
//
//   - The engine never waits. NodePorts runs in a goroutine of its own and only
//     learns from the engine which frontends to look at again.
//   - Only clients on the loopback interface are served, regardless of the kernel's
//     settings.
//   - A port that cannot be listened on is reported once, with a remedy, and
//     retried with a backoff. All others are served meanwhile.
//   - Nothing is served before the kernel was programmed for the first time.
//
// SCTP is not supported.
package loopback
