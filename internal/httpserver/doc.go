// Package httpserver has what all HTTP servers of the proxy do alike: they answer
// until the end, let answers under way finish then, and try again when they
// cannot listen. What they answer, and what a client may use of them, is theirs.
package httpserver
