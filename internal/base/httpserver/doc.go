// Package httpserver is shared by all HTTP servers of the proxy: they drain at
// shutdown, retry when they cannot listen, and limit the number of open connections.
package httpserver
