// Package ctnetlink is the format of connection tracking entries, and how those of single
// connections are read, made and deleted.
//
// A proxy that accepts a connection and opens another one needs both: which address the
// client connected to before it was led to the proxy, and a way to let the endpoint see
// the client's address instead of the proxy's. For the latter an entry is created before
// the first packet, so that the kernel translates the source of the connection and leads
// replies back, without transparent sockets, marks or routes.
package ctnetlink
