package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestCommitHasItsEventsOnce(t *testing.T) {
	var got []Events
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.observe(func(c *Commit) { got = append(got, c.Events) })
		trigger := time.Now()
		b.Update(web("10.0.0.1", 0), web("10.0.0.2", 0))
		b.sync()
		b.kernel.failWith(errBroken)
		b.Update(web("10.0.0.1", 1))
		synctest.Wait()
		b.Update(model.SetSlice{Slice: &model.Slice{Name: webName("s"), Service: "10.0.0.2", Family: model.IPv4, Trigger: trigger}})
		b.kernel.failWith(nil)
		time.Sleep(time.Minute)
		b.SetPlanConfig(plan.Config{NodeName: "there"})
		b.Update(noWeb("10.0.0.1"))
		synctest.Wait()

		var sum Events
		for i, events := range got {
			if events.Since.IsZero() {
				t.Errorf("commit %d does not have the time of its events", i)
			}
			sum.Services += events.Services
			sum.Slices += events.Slices
			sum.Triggers = append(sum.Triggers, events.Triggers...)
		}
		if got[0].Services != 2 {
			t.Errorf("the first commit has %d Services, want 2", got[0].Services)
		}
		if sum.Services != 4 || sum.Slices != 1 || len(sum.Triggers) != 1 || !sum.Triggers[0].At.Equal(trigger) {
			t.Errorf("all commits have %+v, want each event once", sum)
		}
	})
}

func TestLastVerified(t *testing.T) {
	run(t, Options{SyncPeriod: time.Minute}, func(t *testing.T, b *fixture) {
		b.sync()
		if s := b.Status(); !s.LastVerified.IsZero() {
			t.Errorf("verified at %s before the first look", s.LastVerified)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		found := time.Now()
		if s := b.Status(); !s.LastVerified.Equal(found) {
			t.Errorf("verified at %s, want %s", s.LastVerified, found)
		}
		b.kernel.configure(func(d *fakeDataplane) {
			d.verify = func(context.Context) (bool, error) { return false, errors.New("dump interrupted") }
		})
		time.Sleep(time.Hour)
		if s := b.Status(); !s.LastVerified.Equal(found) {
			t.Errorf("verified at %s by a look that failed", s.LastVerified)
		}
	})
}

func TestEventsAreCountedWithTheirTriggers(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	triggered := func(service, name string, f model.Family, at time.Time) model.Event {
		return model.SetSlice{Slice: &model.Slice{Name: webName(name), Service: service, Family: f, Trigger: at}}
	}
	service := model.SetService{Service: &model.Service{Name: webName("web")}}
	tests := []struct {
		name string
		in   []model.Event
		want Events
	}{
		{"nothing", nil, Events{}},
		{"Services, known or not", []model.Event{service, noWeb("web"), noWeb("x")}, Events{Services: 3}},
		{"slices without a trigger", []model.Event{triggered("web", "a", model.IPv4, time.Time{}), model.DeleteSlice{Name: webName("a")}}, Events{Slices: 2}},
		{"what is neither", []model.Event{model.SetNode{}, model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{Name: "x"}}, model.SetHostIPs{}}, Events{}},
		{"a trigger for each change", []model.Event{triggered("web", "a", model.IPv4, at(1)), triggered("web", "b", model.IPv6, at(2)), triggered("web", "a", model.IPv4, at(3))},
			Events{Slices: 3, Triggers: []Trigger{{model.IPv4, at(1)}, {model.IPv6, at(2)}, {model.IPv4, at(3)}}}},
		{"a trigger seen before", []model.Event{triggered("web", "a", model.IPv4, at(1)), triggered("web", "a", model.IPv4, at(1))},
			Events{Slices: 2, Triggers: []Trigger{{model.IPv4, at(1)}}}},
		{"another Service's", []model.Event{triggered("web", "a", model.IPv4, at(1)), triggered("mail", "a", model.IPv4, at(1))},
			Events{Slices: 2, Triggers: []Trigger{{model.IPv4, at(1)}, {model.IPv4, at(1)}}}},
		{"the end of a slice has no trigger", []model.Event{triggered("web", "a", model.IPv4, at(1)), model.DeleteSlice{Name: webName("a")}},
			Events{Slices: 2, Triggers: []Trigger{{model.IPv4, at(1)}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := New(Options{})
			e.learn(tt.in)
			if diff := cmp.Diff(tt.want, e.events.taken(e.backlog)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEventsOfWaitingChangesAddUp(t *testing.T) {
	var got []Events
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.observe(func(c *Commit) { got = append(got, c.Events) })
		b.sync()
		got = nil
		release := b.kernel.holdCommits()
		b.Update(web("10.0.0.1", 0))
		synctest.Wait()
		first := time.Now()
		b.kernel.failWith(errBroken)
		release()
		time.Sleep(ms)
		b.Update(web("10.0.0.2", 0))
		synctest.Wait()
		b.kernel.failWith(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		want := []Events{{Services: 2, Since: first, Touched: map[model.Name]struct{}{webName("10.0.0.1"): {}, webName("10.0.0.2"): {}}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		got = nil
		b.SetPlanConfig(plan.Config{NodeName: "there"})
		synctest.Wait()
		if len(got) != 1 || !got[0].Everything {
			t.Errorf("another configuration was reported as %+v", got)
		}
	})
}
