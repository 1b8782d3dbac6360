// Package netnstest provides network namespaces that are removed when a test
// ends. It needs root.
package netnstest
