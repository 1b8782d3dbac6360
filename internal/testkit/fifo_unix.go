//go:build unix

package testkit

import "syscall"

// MakeFIFO makes a named pipe, which blocks whoever opens it.
func MakeFIFO(path string) error { return syscall.Mkfifo(path, 0o644) }
