package health

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/plan"
)

func TestStartingNodeNeedsNoNodeObject(t *testing.T) {
	const missing = "there is no Node object"
	tests := []struct {
		name  string
		in    plan.Eligibility
		after time.Duration
		want  string
	}{
		{"all is well", plan.Eligibility{}, time.Hour, ""},
		{"no Node object at first", plan.Eligibility{Reason: missing, Starting: true}, 0, ""},
		{"no Node object for long", plan.Eligibility{Reason: missing, Starting: true}, 29 * time.Second, ""},
		{"no Node object for too long", plan.Eligibility{Reason: missing, Starting: true}, 30 * time.Second, missing},
		{"marked for removal from the start", plan.Eligibility{Reason: "tainted"}, 0, "tainted"},
		{"marked for removal", plan.Eligibility{Reason: "tainted"}, time.Hour, "tainted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			e := NewEligibility(&fixture{desired: plan.Desired{Eligibility: tt.in}}, clock)
			clock.SetTime(clock.Now().Add(tt.after))
			if got := e.Leaving(); got != tt.want {
				t.Errorf("leaving is %q, want %q", got, tt.want)
			}
		})
	}
}
