package health

import (
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/engine"
)

// Programming returns a function that tells whether the kernel follows what is
// desired: no change has waited for longer than limit, and programming has not
// failed for so long either. Short trouble, which the engine gets over by
// itself, is nobody's reason to send traffic elsewhere.
func Programming(status func() engine.Summary, c clock.PassiveClock, limit time.Duration) func() bool {
	return func() bool {
		s := status()
		for _, since := range []time.Time{s.PendingSince, s.FailingSince} {
			if !since.IsZero() && c.Since(since) > limit {
				return false
			}
		}
		return true
	}
}
