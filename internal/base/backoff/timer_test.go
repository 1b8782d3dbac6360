package backoff

import (
	"errors"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestTimerFiresForFirstDue(t *testing.T) {
	now := time.Unix(1000, 0)
	c := clocktesting.NewFakeClock(now)
	var once, twice Tries
	once.Fail(errors.New("taken"), now)
	twice.Fail(errors.New("taken"), now)
	twice.Fail(errors.New("taken"), now)
	fires, stop := NewTimer(c, slices.Values([]*Tries{&twice, &once}))
	c.Step(First - 1)
	if len(fires) > 0 {
		t.Error("fires before the first is due")
	}
	c.Step(1)
	if len(fires) != 1 {
		t.Error("does not fire when the first is due")
	}
	stop()
	fires, stop = NewTimer(c, slices.Values([]*Tries(nil)))
	if fires != nil || c.HasWaiters() {
		t.Error("waits although nothing failed")
	}
	stop()
}
