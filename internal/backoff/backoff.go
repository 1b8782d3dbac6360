package backoff

import "time"

const (
	// First is the pause after the first failure. Each further one doubles it.
	First = 100 * time.Millisecond
	// Max is the longest pause.
	Max = 30 * time.Second
)

// After is how long to wait after so many failures in a row.
func After(failures int) time.Duration {
	pause := First
	for ; failures > 1 && pause < Max; failures-- {
		pause *= 2
	}
	return min(pause, Max)
}

// Tries is how it goes with something that is tried until it succeeds. The zero
// value is before the first try.
type Tries struct {
	failures  int // in a row
	lastError string
	next      time.Time
}

// Failures counts those since the last success.
func (t *Tries) Failures() int { return t.failures }

// Next is when to try again; the zero time, which is at once, if nothing failed.
func (t *Tries) Next() time.Time { return t.next }

// Due tells whether the time has come to try.
func (t *Tries) Due(now time.Time) bool { return !now.Before(t.next) }

// Fail notes a failure. It returns the pause before the next try, and whether the
// reason is another than before.
func (t *Tries) Fail(err error, now time.Time) (pause time.Duration, news bool) {
	t.failures++
	pause = After(t.failures)
	t.next = now.Add(pause)
	text := err.Error()
	news = text != t.lastError
	t.lastError = text
	return pause, news
}

// Succeed notes a success, after which all is as before the first try.
func (t *Tries) Succeed() { *t = Tries{} }
