package testkit

import (
	"errors"
	"testing"
)

func TestWaitingEndsWhenItHolds(t *testing.T) {
	asked := 0
	Eventually(t, func() error {
		if asked++; asked < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	Until(t, func() bool { asked++; return asked == 5 })
	if asked != 5 {
		t.Errorf("asked %d times, want 5", asked)
	}
}

func TestReceive(t *testing.T) {
	values := make(chan int, 1)
	values <- 7
	if got := Receive(t, values, "a number"); got != 7 {
		t.Errorf("received %d, want 7", got)
	}
	close(values)
	if got := Receive(t, values, "the end"); got != 0 {
		t.Errorf("received %d from a closed channel", got)
	}
}

func TestJournalKeepsVerbosityZero(t *testing.T) {
	var j Journal
	log := j.Logger()
	log.Info("one", "service", "web")
	log.V(1).Info("details", "service", "web")
	log.Error(errors.New("taken"), "two")
	for _, tt := range []struct {
		in   string
		want int
	}{{"web", 1}, {"details", 0}, {"taken", 1}, {"", 2}} {
		if got := j.With(tt.in); len(got) != tt.want {
			t.Errorf("lines with %q: %q, want %d", tt.in, got, tt.want)
		}
	}
}

func TestLoopbackAddressesAreDistinct(t *testing.T) {
	one, two := Loopback(1), Loopback(2)
	if !one.IsLoopback() || !two.IsLoopback() || one == two {
		t.Errorf("addresses %v and %v", one, two)
	}
	if again := Loopback(1); again != one {
		t.Errorf("%v became %v", one, again)
	}
}
