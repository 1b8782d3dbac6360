// Package control lets programs on this machine ask a running proxy: HTTP and
// JSON over a unix socket, for root and the proxy's own user only.
//
// The server is a mux to which anybody may add pages. It bounds how large and
// how long requests are, and an answer is complete before the first byte of it
// is written, so that a slow reader holds nothing up. A proxy that cannot have
// its socket does all its other work.
package control
