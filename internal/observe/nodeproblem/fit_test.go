package nodeproblem

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// slowClock advances by what a walk takes each time it is read.
type slowClock struct {
	*clocktesting.FakeClock
	step time.Duration
}

func (c *slowClock) Now() time.Time {
	c.Step(c.step)
	return c.FakeClock.Now()
}

// All Services are looked at only if something has changed, and rarely if that takes long.
func TestFitIsFoundOutRarely(t *testing.T) {
	empty, wrong := model.NewState(), model.NewState()
	wrong.Apply(&model.Dirty{}, model.SetService{Service: &model.Service{Name: model.Name{Namespace: "default", Name: "web"}}},
		model.SetSlice{Slice: &model.Slice{Name: model.Name{Namespace: "default", Name: "web-1"}, Service: "web", Endpoints: []model.Endpoint{{Node: "other"}}}})
	clock := &slowClock{FakeClock: clocktesting.NewFakeClock(time.Unix(1000, 0))}
	f := &Fit{Clock: clock}
	cfg := &plan.Config{NodeName: "here"}
	look := func(what string, cfg *plan.Config, state *model.State, version uint64, want int) {
		t.Helper()
		if node, _ := f.Look(cfg, state, version); len(node) != want {
			t.Errorf("%s: %v", what, node)
		}
	}
	look("at first", cfg, empty, 1, 0)
	look("the same version", cfg, wrong, 1, 0)
	look("another version", cfg, wrong, 2, 1)
	look("another configuration", &plan.Config{NodeName: "other"}, wrong, 2, 0)
	clock.step = 10 * time.Millisecond
	look("a slow walk", cfg, wrong, 3, 1)
	look("just after it", cfg, empty, 4, 1)
	clock.Step(costFactor * clock.step)
	look("later", cfg, empty, 4, 0)
}
