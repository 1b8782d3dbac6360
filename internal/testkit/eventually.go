package testkit

import (
	"errors"
	"testing"
	"time"
)

// Patience is how long a test waits for what must come: longer than that takes on
// the busiest machine.
const Patience = 30 * time.Second

// Eventually waits until holds returns nil. The test ends with its last error if
// that takes too long.
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

// Until waits until something holds. The test ends if that takes too long.
func Until(t testing.TB, holds func() bool) {
	t.Helper()
	Eventually(t, func() error {
		if !holds() {
			return errors.New("it does not come true")
		}
		return nil
	})
}
