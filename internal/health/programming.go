package health

import (
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/engine"
)

// limit is how long a change may be pending, and programming may fail: two sync
// periods, as with upstream.
func limit(s *engine.Summary) time.Duration { return 2 * s.SyncPeriod }

// Programming returns a function that reports whether the kernel is up to date:
// no change has been pending for longer than two sync periods, and programming
// has not failed for that long either. Shorter failures, from which the engine
// recovers by itself, are no reason to send traffic elsewhere.
func Programming(status func() engine.Summary, c clock.PassiveClock) func() bool {
	return func() bool {
		s := status()
		return !overdue(&s, s.PendingSince, c) && !overdue(&s, s.FailingSince, c)
	}
}

// overdue reports whether what began then has lasted too long; a zero time is never.
func overdue(s *engine.Summary, since time.Time, c clock.PassiveClock) bool {
	return !since.IsZero() && c.Since(since) > limit(s)
}
