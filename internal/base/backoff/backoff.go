// Package backoff computes when to retry: soon at first, and with exponentially
// growing pauses as failures go on.
package backoff

import (
	"iter"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

const (
	// First is the pause after the first failure. Each further failure doubles
	// it.
	First = 100 * time.Millisecond
	// Max is the longest pause.
	Max = 30 * time.Second
)

// After returns the pause after that many failures in a row.
func After(failures int) time.Duration {
	pause := First
	for ; failures > 1 && pause < Max; failures-- {
		pause *= 2
	}
	return min(pause, Max)
}

// Tries tracks something that is retried until it succeeds. The zero value is
// before the first try.
type Tries struct {
	failures  int // in a row
	lastError string
	next      time.Time
}

// Failures returns the number of failures since the last success.
func (t *Tries) Failures() int { return t.failures }

// Next returns when to retry; the zero time, which is immediately, if nothing
// failed.
func (t *Tries) Next() time.Time { return t.next }

// Due reports whether it is time to try.
func (t *Tries) Due(now time.Time) bool { return !now.Before(t.next) }

// Fail records a failure. It returns the pause before the next try, and whether
// the reason differs from the last one.
func (t *Tries) Fail(err error, now time.Time) (pause time.Duration, news bool) {
	t.failures++
	pause = After(t.failures)
	t.next = now.Add(pause)
	text := err.Error()
	news = text != t.lastError
	t.lastError = text
	return pause, news
}

// Log records a failure to do something, and logs it: in full if the reason differs from the last one,
// which it reports.
func (t *Tries) Log(log logr.Logger, err error, now time.Time, doing, remedy string) (news bool) {
	pause, news := t.Fail(err, now)
	switch {
	case !news:
		log.V(1).Info("Still cannot "+doing, "err", err.Error(), "failures", t.failures, "retry", pause)
	case remedy == "":
		log.Error(err, "Cannot "+doing, "retry", pause)
	default:
		log.Error(err, "Cannot "+doing, "remedy", remedy, "retry", pause)
	}
	return news
}

// Succeed records a success and resets everything.
func (t *Tries) Succeed() { *t = Tries{} }

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
