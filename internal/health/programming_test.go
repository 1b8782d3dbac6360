package health

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/engine"
)

func TestProxyIsHealthyUnlessTroubleLasts(t *testing.T) {
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
			healthy := Programming(func() engine.Summary { return tt.in }, clocktesting.NewFakePassiveClock(now), time.Minute)
			if got := healthy(); got != tt.want {
				t.Errorf("healthy is %v", got)
			}
		})
	}
}
