// Package testkit has what tests of many packages need: polling with a generous
// timeout, a log that can be searched, and addresses.
package testkit

import (
	"errors"
	"testing"
	"time"
)

// Patience is the timeout for conditions that must become true, generous enough
// for the busiest machine.
const Patience = 30 * time.Second

// Eventually waits until holds returns nil. After the timeout the test fails
// with its last error.
func Eventually(t testing.TB, holds func() error) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
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
