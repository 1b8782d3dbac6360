//go:build !linux

package proxy

// unmapProgram does nothing.
func unmapProgram() error { return nil }
