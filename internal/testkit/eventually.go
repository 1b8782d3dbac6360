// Package testkit has what tests of many packages need: how much to test, timeouts that
// follow the load of the machine, polling, a log that can be searched, and addresses.
package testkit

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Timeout is the timeout for conditions that must become true. Poll and WithTimeout extend it
// on a busy machine; other uses take Scaled(Timeout).
const Timeout = 30 * time.Second

// Poll waits until holds returns nil, and returns its last error if that takes longer
// than the timeout, Scaled.
func Poll(timeout time.Duration, holds func() error) error {
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := holds()
		if waited := time.Since(start); err == nil || waited > timeout && waited > Scaled(timeout) {
			return err
		}
	}
}

// Eventually waits until holds returns nil. The test ends with its last error if
// that takes too long.
func Eventually(t testing.TB, holds func() error) {
	t.Helper()
	if err := Poll(Timeout, holds); err != nil {
		t.Fatal(err)
	}
}

// Until waits until holds returns true. After the timeout the test fails.
func Until(t testing.TB, holds func() bool) {
	t.Helper()
	Eventually(t, func() error {
		if !holds() {
			return errors.New("it does not come true")
		}
		return nil
	})
}

// Receive returns what comes from a channel, or that it is closed. The test ends if that takes
// too long, with what it waited for.
func Receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	ctx, cancel := WithTimeout(context.Background(), Timeout)
	defer cancel()
	select {
	case value := <-from:
		return value
	case <-ctx.Done():
	}
	t.Fatalf("%s: %v", what, context.Cause(ctx))
	return *new(T)
}
