// Package control answers requests of other processes on this machine: JSON and HTTP
// over a unix socket, for root and the proxy's own user only.
//
// The server is a mux of pages. It limits the size and the duration of requests, and an
// answer is complete before its first byte is written, so that a slow client blocks
// nothing. A proxy that cannot listen on its socket works without it.
package control
