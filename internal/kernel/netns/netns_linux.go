// Package netns runs code in another network namespace.
package netns

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do calls f in a network namespace, given as an open file descriptor, or in the
// caller's with 0. Goroutines that f starts are not in it.
func Do(ns int, f func() error) error {
	if ns == 0 {
		return f()
	}
	done := make(chan error)
	go func() { done <- enter(ns, f) }()
	return <-done
}

// enter runs f in another network namespace, on a thread that ends with the calling goroutine, so
// that no other goroutine runs there.
func enter(ns int, f func() error) error {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The first thread never ends, and /proc/self and /proc/net are about its namespace. While it
		// is held here, others do the work.
		defer runtime.UnlockOSThread()
		return Do(ns, f)
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	return f()
}
