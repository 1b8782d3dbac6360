// Package httpserver has what all HTTP servers of the proxy do alike: they answer
// until the end, let answers under way finish then, try again when they cannot
// listen, and keep a bounded number of connections open. What they answer, and what
// a client may use of them, is theirs.
package httpserver
