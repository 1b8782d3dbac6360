// Package relay forwards connections from a socket that this process listens on to
// endpoints. It is for cases that the kernel cannot handle.
//
// A Relay has one address, one protocol, TCP or UDP, and a route, which can be replaced at any
// time: a pool of endpoints, and what happens when the pool is empty. Or its owner has the
// pools, and chooses one for each client. A Router is a socket to which the kernel leads the connections of
// many frontends: it finds out which one a client meant, and asks for its Pool.
// Pools of the same service port share a Balancer.
//
// Guarantees:
//
//   - The algorithm and the weights of the route choose the endpoint. With affinity a client address
//     keeps its endpoint until the timeout, or until the endpoint leaves the pool.
//     Affinity is lost when the process ends.
//   - If an endpoint refuses or does not answer soon, others are tried. An established TCP
//     connection outlives every change of the route, and the closing of the socket,
//     unless ResetRemoved is set. Half-closes and resets are forwarded. A connection
//     ends in order only if both sides ended it so: if this process is killed, it is reset.
//   - Each UDP client socket has an endpoint of its own choice, until it was idle
//     for IdleTimeout, the endpoint refuses, or it no longer serves. The next
//     packet then gets another one. An endpoint that left the pool but still
//     serves, because it shuts down gracefully, keeps its clients.
//   - A Relay with an empty pool refuses as a closed port does: nothing listens there. With
//     verdict Drop the port does not answer instead.
//   - Memory and sockets are bounded, see Budget and MaxAffinityEntries, and shared
//     fairly among clients and Services. What exceeds the Budget is reset. When sockets run
//     out all the same, a listener pauses and then goes on. Data waits in the kernel only, so
//     that a slow reader costs no memory.
//
// The owner decides what to listen on, and when to retry after a failure.
package relay
