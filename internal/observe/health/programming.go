package health

import (
	"k8s.io/utils/clock"

	"sluice/internal/engine"
)

// Programming returns a function that reports whether the kernel is up to date.
func Programming(status func() engine.Summary, c clock.PassiveClock) func() bool {
	return func() bool {
		s := status()
		return !s.Behind(c.Now())
	}
}
