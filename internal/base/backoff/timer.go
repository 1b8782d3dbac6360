package backoff

import (
	"iter"
	"time"

	"k8s.io/utils/clock"
)

// NewTimer returns a channel that fires when the first of the failed tries is
// due, never if there are none, and a function that releases the timer.
func NewTimer(c clock.Clock, failed iter.Seq[*Tries]) (fires <-chan time.Time, stop func()) {
	var next time.Time
	for t := range failed {
		if next.IsZero() || t.next.Before(next) {
			next = t.next
		}
	}
	if next.IsZero() {
		return nil, func() {}
	}
	timer := c.NewTimer(next.Sub(c.Now()))
	return timer.C(), func() { timer.Stop() }
}
