// Package httpserver is shared by all HTTP servers of the proxy: they limit what one client may
// take and how many connections are open, retry when they cannot listen, and drain at shutdown.
package httpserver
