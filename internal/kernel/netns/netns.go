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
	go func() {
		// The thread stays locked: it ends with the goroutine, so that no other
		// goroutine runs in its namespace.
		runtime.LockOSThread()
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}
