//go:build !linux

package capability

// Raise does nothing: the part of the proxy that runs here needs no capability.
func Raise() error { return nil }
