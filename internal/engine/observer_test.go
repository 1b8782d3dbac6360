package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/plan"
)

// TestCommitIsComplete has observers find out from the Commit alone
// what kind of commit it was, what it brought and how long it took.
func TestCommitIsComplete(t *testing.T) {
	type observed struct {
		Kind                   Kind
		Full, Planned          bool
		Set, Desired, Elements int
		At, Took               time.Duration
	}
	var got []observed
	var start time.Time
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.observe(func(c *Commit) {
			got = append(got, observed{c.Kind, c.Full(), c.Planned, len(c.Change.Set), len(c.Desired.Frontends), c.Result.Elements,
				c.End.Sub(start), c.Duration()})
		})
		start = time.Now()
		b.kernel.configure(func(d *fakeDataplane) { d.delay = func() time.Duration { return ms } })
		b.Update(web("10.0.0.1", 0))
		b.Synced()
		time.Sleep(time.Second)
		b.Update(web("10.0.0.2", 0), web("10.0.0.3", 0))
		time.Sleep(time.Second)
		b.Update(noWeb("10.0.0.7")) // unknown
		time.Sleep(time.Second)
		b.kernel.configure(func(d *fakeDataplane) { delete(d.frontends, webKey("10.0.0.1")) })
		b.kernel.disturbed <- struct{}{}
		time.Sleep(time.Second)
		b.kernel.refuseAddr("10.0.0.2", errRefused)
		b.Update(web("10.0.0.2", 1))
		time.Sleep(50 * ms)
		b.kernel.refuseAddr("10.0.0.2", nil)
		time.Sleep(time.Second)
		synctest.Wait()
	})
	want := []observed{
		{Reconcile, true, true, 1, 1, 1, ms, ms},
		{Apply, false, true, 2, 3, 2, time.Second + ms, ms},
		{None, false, true, 0, 3, 0, 2 * time.Second, 0},
		{Repair, true, false, 0, 3, 1, 3*time.Second + ms, ms},
		{Apply, false, true, 1, 3, 0, 4*time.Second + ms, ms},
		{Apply, false, false, 1, 3, 1, 4*time.Second + 102*ms, ms},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
}

func TestObserversAreNotifiedInOrder(t *testing.T) {
	var got []string
	note := func(name string) Observer {
		return ObserverFunc(func(*Commit) { got = append(got, name) })
	}
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Observe(note("first"), note("second"))
		b.Observe(note("third"))
		b.SetPlanConfig(plan.Config{})
		b.sync()
	})
	if diff := cmp.Diff([]string{"first", "second", "third"}, got); diff != "" {
		t.Errorf("notified (-want +got):\n%s", diff)
	}
}
