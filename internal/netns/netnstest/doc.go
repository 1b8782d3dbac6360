// Package netnstest gives tests network namespaces of their own, which end with
// them. It needs root.
package netnstest
