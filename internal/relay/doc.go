// Package relay carries connections from an address that this process listens
// on to the endpoints of a pool. It is for what the kernel cannot be told to do.
//
// A Relay has one address, one protocol, TCP or UDP, and a route: a pool of
// endpoints, and what happens when the pool is empty. The route can be replaced
// at any time.
//
// What it promises:
//
//   - Every endpoint of the pool is equally likely. With affinity a client
//     address stays with its endpoint until the time-out, or until the endpoint
//     leaves the pool. That memory ends with the process.
//   - A TCP connection that cannot be made is tried with other endpoints. Once
//     it stands it outlives every change of the route, and the closing of the
//     Relay, unless ResetRemoved asks for the contrary. The end of one direction
//     and resets are passed on.
//   - Each client socket of UDP has an endpoint of its own choice, until nothing
//     was heard for IdleTimeout, the endpoint refuses, or it serves no longer. The
//     next packet then finds another one. An endpoint that left the pool but still
//     serves, as one that shuts down in good order, keeps its clients.
//   - An empty pool refuses as a closed port does: nobody listens there. With
//     verdict Drop the port is silent instead.
//   - Memory and sockets are bounded, see Slots, MostClients and MostLoyalties.
//     A lack of sockets makes a Relay pause, and never end.
//
// Who listens, and when to try again what could not be listened on, is for the
// owner of the Relay to decide.
package relay
