// Package relay forwards connections from an address that this process listens
// on to the endpoints of a pool. It is for cases that the kernel cannot handle.
//
// A Relay has one address, one protocol, TCP or UDP, and a route: a pool of
// endpoints, and what happens when the pool is empty. The route can be replaced
// at any time.
//
// Guarantees:
//
//   - The algorithm and the weights of the route choose the endpoint. With affinity a client address
//     keeps its endpoint until the timeout, or until the endpoint leaves the pool.
//     Affinity is lost when the process ends.
//   - If connecting to an endpoint fails, others are tried. An established TCP
//     connection outlives every change of the route, and the closing of the Relay,
//     unless ResetRemoved is set. Half-closes and resets are forwarded.
//   - Each UDP client socket has an endpoint of its own choice, until it was idle
//     for IdleTimeout, the endpoint refuses, or it no longer serves. The next
//     packet then gets another one. An endpoint that left the pool but still
//     serves, because it shuts down gracefully, keeps its clients.
//   - An empty pool refuses as a closed port does: nothing listens there. With
//     verdict Drop the port does not answer instead.
//   - Memory and sockets are bounded, see Slots, MaxClients and MaxAffinityEntries.
//     When sockets run out, a Relay pauses and then goes on.
//
// The owner of a Relay decides what to listen on, and when to retry after a
// failure.
package relay
