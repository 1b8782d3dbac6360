package offload

import (
	"context"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// world is an engine and a kernel.
type world struct {
	*testing.T
	mu      sync.Mutex
	desired plan.Desired
	refuse  error
	calls   chan dataplane.Offload // that the kernel got
	under   *Offload
}

func (w *world) Inspect(f func(engine.View)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(engine.View{Desired: &w.desired})
}

func (w *world) Offload(_ context.Context, o *dataplane.Offload) ([]string, error) {
	call := *o
	call.Changed = maps.Clone(o.Changed)
	w.calls <- call
	w.mu.Lock()
	defer w.mu.Unlock()
	return o.Devices, w.refuse
}

// start runs an Offload until the test ends.
func start(t *testing.T, want string, refuse error) *world {
	t.Helper()
	w := &world{T: t, refuse: refuse, calls: make(chan dataplane.Offload, 1000)}
	w.desired.Frontends = map[plan.Key]*plan.Frontend{}
	w.under = New(Options{Logger: logr.Discard(), Clock: clock.RealClock{}, Offloader: w, Report: func(State) {}})
	w.set(want)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.under.Run(ctx, w) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) set(want string) {
	w.Helper()
	f, err := dataplane.ParseFlowTable(want)
	if err != nil {
		w.Fatal(err)
	}
	w.under.Set(f)
}

// commit adds frontends and removes others.
func (w *world) commit(kind engine.Kind, add, remove []plan.Key) {
	c := &plan.Change{Before: map[plan.Key]*plan.Frontend{}, Removed: remove}
	w.mu.Lock()
	for _, k := range add {
		w.desired.Frontends[k] = &plan.Frontend{Key: k}
		c.Set = append(c.Set, w.desired.Frontends[k])
	}
	for _, k := range remove {
		c.Before[k] = w.desired.Frontends[k]
		delete(w.desired.Frontends, k)
	}
	w.mu.Unlock()
	w.under.Committed(&engine.Commit{Kind: kind, Change: c})
}

// told waits until the kernel was told of these frontends, and returns of how many others.
func (w *world) told(there bool, keys ...plan.Key) (others int) {
	w.Helper()
	left := map[plan.Key]bool{}
	for _, k := range keys {
		left[k] = true
	}
	for len(left) > 0 {
		call := testkit.Receive(w, w.calls, "a change of flow tables")
		for k, is := range call.Changed {
			if left[k] && is == there {
				delete(left, k)
			} else {
				others++
			}
		}
	}
	return others
}

func frontend(at string, p model.Protocol) plan.Key {
	to := netip.MustParseAddrPort(at)
	return plan.Key{Addr: to.Addr(), Port: to.Port(), Protocol: p}
}

var web, dns, late = frontend("10.96.0.1:80", model.TCP), frontend("10.96.0.10:53", model.UDP), frontend("[fd00:10:96::7]:80", model.TCP)

// The kernel is told of all frontends once, and then of those that come and go.
func TestWorkFollowsChange(t *testing.T) {
	t.Parallel()
	w := start(t, "outside:lo", nil)
	w.commit(engine.Reconcile, []plan.Key{web, dns}, nil)
	w.told(true, web, dns)
	w.commit(engine.Apply, []plan.Key{late}, nil)
	if n := w.told(true, late); n > 0 {
		t.Errorf("told of %d frontends that did not change", n)
	}
	w.commit(engine.Apply, nil, []plan.Key{web})
	if n := w.told(false, web); n > 0 {
		t.Errorf("told of %d frontends that did not change", n)
	}
	w.set("off")
	testkit.Until(t, func() bool { return len((<-w.calls).Families) == 0 })
	w.commit(engine.Apply, []plan.Key{web}, []plan.Key{late})
	w.set("outside:lo")
	w.told(true, web, dns)
	testkit.Until(t, func() bool { return w.under.State().Err == nil && w.under.State().Want.On() })
	w.set("outside:none")
	testkit.Until(t, func() bool {
		return len(w.under.Advisories()) == 1 && strings.Contains(w.under.Advisories()[0].Reason, "is called none")
	})
}

// A kernel without flow tables looks for modules whenever it is asked for one: it is not asked for each change.
func TestRefusalIsNotRepeated(t *testing.T) {
	t.Parallel()
	w := start(t, "outside:lo", dataplane.ErrNoFlowTables)
	w.commit(engine.Reconcile, []plan.Key{web}, nil)
	w.told(true, web)
	testkit.Until(t, func() bool { return len(w.under.Advisories()) == 1 })
	w.commit(engine.Apply, []plan.Key{dns}, nil)
	w.commit(engine.Apply, []plan.Key{late}, nil)
	testkit.Until(t, func() bool { return len(w.under.changed.Signal) == 0 })
	if len(w.calls) > 0 {
		t.Error("the kernel is asked again at once")
	}
	w.set("off")
	testkit.Until(t, func() bool { return len((<-w.calls).Families) == 0 })
}
