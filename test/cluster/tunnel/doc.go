// Package tunnel carries connections from a host of a lab to a server outside
// of it, such as an API server on loopback of the machine. There is no route
// between the two: the tunnel listens in the host's namespace, and copies.
//
// Because every byte passes through it, a tunnel can also be what goes wrong
// between a client and its server: Slow, Stall, Forget and Cut.
package tunnel
