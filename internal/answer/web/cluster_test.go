package web

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// summary describes each Service in short form.
func (c *cluster) summary() []string {
	out := []string{}
	for i := range c.services {
		s := &c.services[i]
		words := []string{s.Name.String(), fmt.Sprint(len(s.frontends))}
		if s.problem {
			words = append(words, "problem")
		}
		if s.empty {
			words = append(words, "empty")
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

func TestChangesAreInTheNextSnapshot(t *testing.T) {
	gone := func(name string) model.Event {
		return model.DeleteService{Name: model.Name{Namespace: "default", Name: name}}
	}
	tests := []struct {
		name string
		in   func(*world)
		want []string
		idle int
	}{
		{"nothing", func(*world) {}, []string{"default/a 1", "default/b 1 empty"}, 1},
		{"a new Service", func(w *world) { w.Change(app("default/aa", "10.96.0.3", []string{"10.244.1.3"})...) },
			[]string{"default/a 1", "default/aa 1", "default/b 1 empty"}, 1},
		{"a Service less", func(w *world) { w.Change(gone("a")) }, []string{"default/b 1 empty"}, 1},
		{"one instead of another", func(w *world) { w.Change(append(app("default/c", "10.96.0.3", nil), gone("a"))...) },
			[]string{"default/b 1 empty", "default/c 1 empty"}, 2},
		{"a first endpoint", func(w *world) { w.Change(app("default/b", "10.96.0.2", []string{"10.244.1.2"})...) },
			[]string{"default/a 1", "default/b 1"}, 0},
		{"a last endpoint", func(w *world) { w.Change(app("default/a", "10.96.0.1", nil)...) },
			[]string{"default/a 1 empty", "default/b 1 empty"}, 2},
		{"another frontend", func(w *world) {
			w.Change(app("default/b", "10.96.0.2", nil, func(s *model.Service) { s.ExternalIPs = []netip.Addr{netip.MustParseAddr("198.51.100.7")} })...)
		}, []string{"default/a 1", "default/b 2 empty"}, 1},
		{"a mistake", func(w *world) {
			w.Change(app("default/b", "10.96.0.2", nil, func(s *model.Service) {
				s.Problems = []model.Problem{{Object: model.Object{Kind: "Service", Namespace: "default", Name: "b"}, Reason: "odd"}}
			})...)
		}, []string{"default/a 1", "default/b 1 problem empty"}, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.Sync(concat(app("default/a", "10.96.0.1", []string{"10.244.1.1"}), app("default/b", "10.96.0.2", nil))...)
			w.page.cluster()
			test.in(w)
			got := w.page.cluster()
			if diff := cmp.Diff(test.want, got.summary()); diff != "" || got.idle != test.idle {
				t.Errorf("%d are idle, want %d; Services (-want +got):\n%s", got.idle, test.idle, diff)
			}
		})
	}
}

func TestReconfigurationIsInTheNextSnapshot(t *testing.T) {
	w := newWorld(t)
	w.Sync(app("default/a", "10.96.0.1", nil, func(s *model.Service) { s.ExternalIPs = []netip.Addr{netip.MustParseAddr("198.51.100.7")} })...)
	if diff := cmp.Diff([]string{"default/a 2 empty"}, w.page.cluster().summary()); diff != "" {
		t.Errorf("Services (-want +got):\n%s", diff)
	}
	w.Engine.SetPlanConfig(plan.Config{NodeName: "node1", NoExternalIPs: true})
	w.Settle()
	if diff := cmp.Diff([]string{"default/a 1 problem empty"}, w.page.cluster().summary()); diff != "" {
		t.Errorf("Services (-want +got):\n%s", diff)
	}
}

func TestUnchangedClusterIsReused(t *testing.T) {
	w := shopWorld(t)
	first := w.page.cluster()
	w.get("/")
	w.get("/service?namespace=default&name=web")
	if w.page.cluster() != first {
		t.Error("the cluster was taken in again, though nothing changed")
	}
}

func TestCacheExpires(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC))
	w := newWorld(t, func(o *Options) { o.Clock = c })
	w.Sync(many(3)...)
	kept := func() bool { return w.page.last.Load() != nil }
	for range 3 { // looks that come before it is too late
		w.get("/")
		c.Step(keepFor - time.Second)
		if !kept() {
			t.Fatal("what was seen is forgotten too early")
		}
	}
	c.Step(2 * time.Second)
	testkit.Eventually(t, func() error { // it is forgotten on a goroutine of the clock
		if kept() {
			return errors.New("what was seen is still there")
		}
		return nil
	})
}
