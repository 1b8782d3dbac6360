package health

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/engine"
)

func TestHealthyUnlessFailingForLong(t *testing.T) {
	now := time.Unix(10_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	tests := []struct {
		name string
		in   engine.Summary
		want bool
	}{
		{"nothing to do", engine.Summary{}, true},
		{"all done long ago", engine.Summary{LastCommit: ago(time.Hour)}, true},
		{"a change waits", engine.Summary{PendingSince: ago(time.Minute)}, true},
		{"a change waits too long", engine.Summary{PendingSince: ago(time.Minute + 1)}, false},
		{"programming fails", engine.Summary{FailingSince: ago(time.Minute)}, true},
		{"programming fails too long", engine.Summary{FailingSince: ago(time.Minute + 1)}, false},
		{"programming fails, a new change waits", engine.Summary{FailingSince: ago(time.Hour), PendingSince: ago(1)}, false},
		{"some frontend is refused", engine.Summary{Failed: 1}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			healthy := Programming(summaryOf(tt.in), clocktesting.NewFakePassiveClock(now))
			if got := healthy(); got != tt.want {
				t.Errorf("healthy is %v", got)
			}
		})
	}
}

// summaryOf is a status with a sync period of half a minute.
func summaryOf(s engine.Summary) func() engine.Summary {
	s.SyncPeriod = 30 * time.Second
	return func() engine.Summary { return s }
}

// The limit follows the sync period in force.
func TestLimitFollowsSyncPeriod(t *testing.T) {
	now := time.Now()
	s := engine.Summary{PendingSince: now.Add(-time.Minute), SyncPeriod: 30 * time.Second}
	healthy := Programming(func() engine.Summary { return s }, clocktesting.NewFakePassiveClock(now))
	for _, tt := range []struct {
		period time.Duration
		want   bool
	}{{30 * time.Second, true}, {29 * time.Second, false}, {time.Hour, true}} {
		if s.SyncPeriod = tt.period; healthy() != tt.want {
			t.Errorf("sync period %s: healthy is %t", tt.period, !tt.want)
		}
	}
}
