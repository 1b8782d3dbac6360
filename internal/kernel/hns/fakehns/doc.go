// Package fakehns is a Host Networking Service for tests: networks, endpoints and load balancers
// as JSON documents in memory, what the service refuses, and what no client should do. Its calls are
// those of the DLLs of Windows, so that a client can also reach it from a Windows program.
//
// It was never compared with the real service. These are attested by bug reports or by the source
// of other clients: two load balancers with one address, protocol and port are refused, as is an ID
// that exists; without the service calls fail with 0x6b5; load balancers cannot be modified before
// version 15.5. When documents are refused for their contents is a guess.
package fakehns
