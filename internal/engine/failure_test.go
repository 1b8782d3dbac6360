package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/model"
	"sluice/internal/plan"
)

var (
	errRefused = errors.New("kernel refused")
	errBroken  = errors.New("no buffer space")
)

const ms = time.Millisecond

func TestRefusedFrontendDelaysNoOther(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.refuseAddr("10.0.0.1", errRefused)
		b.Update(web("10.0.0.1", 0), web("10.0.0.2", 0))
		wantCalls(t, b, call{"apply", 0, "10.0.0.1 10.0.0.2"})
		time.Sleep(50 * ms)
		b.Update(web("10.0.0.3", 0))
		wantCalls(t, b, call{"apply", 50 * ms, "10.0.0.3"})
		wantContent(t, b, "10.0.0.2 10.0.0.3")

		time.Sleep(700 * ms)
		wantCalls(t, b, call{"apply", 100 * ms, "10.0.0.1"}, call{"apply", 300 * ms, "10.0.0.1"},
			call{"apply", 700 * ms, "10.0.0.1"})
		wantLogged(t, b, `"msg"="Frontend was refused"`, 1)

		b.kernel.refuseAddr("10.0.0.1", nil)
		time.Sleep(time.Hour)
		wantCalls(t, b, call{"apply", 1500 * ms, "10.0.0.1"})
		wantContent(t, b, "10.0.0.1 10.0.0.2 10.0.0.3")
		wantLogged(t, b, `"level"=0 "msg"="Tried refused frontends again"`, 1)
	})
}

func TestChangedRefusedFrontendIsRetried(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.refuseAddr("10.0.0.1", errRefused)
		b.Update(web("10.0.0.1", 0))
		time.Sleep(10 * ms)
		b.kernel.taken()
		b.kernel.refuseAddr("10.0.0.1", nil)
		b.Update(web("10.0.0.1", 1))
		wantCalls(t, b, call{"apply", 10 * ms, "10.0.0.1"})
		time.Sleep(time.Hour)
		wantCalls(t, b)
		if failures := b.Failures(); len(failures) > 0 {
			t.Errorf("still failed: %v", failures)
		}
	})
}

func TestRefusedFrontendsHaveOwnBackoff(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.configure(func(d *fakeDataplane) { d.refuse = func(plan.Key) error { return errRefused } })
		b.Update(web("10.0.0.1", 0))
		time.Sleep(150 * ms)
		b.Update(web("10.0.0.2", 0))
		time.Sleep(200 * ms)
		wantCalls(t, b,
			call{"apply", 0, "10.0.0.1"}, call{"apply", 100 * ms, "10.0.0.1"},
			call{"apply", 150 * ms, "10.0.0.2"}, call{"apply", 250 * ms, "10.0.0.2"},
			call{"apply", 300 * ms, "10.0.0.1"})
	})
}

func TestRefusedRemovalIsRetried(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0), web("10.0.0.2", 0))
		b.sync()
		b.kernel.refuseAddr("10.0.0.1", errRefused)
		b.Update(noWeb("10.0.0.1"), noWeb("10.0.0.2"))
		wantContent(t, b, "10.0.0.1")
		if s, ok := b.Frontend(webKey("10.0.0.1")); !ok || s.Phase != Failed || !s.Removing {
			t.Errorf("status is %+v", s)
		}
		b.kernel.refuseAddr("10.0.0.1", nil)
		time.Sleep(100 * ms)
		wantContent(t, b, "")
		if s, ok := b.Frontend(webKey("10.0.0.1")); ok {
			t.Errorf("a frontend that is gone still has status %+v", s)
		}
	})
}

func TestRefusedAndDeletedIsForgotten(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.refuseAddr("10.0.0.1", errRefused)
		b.Update(web("10.0.0.1", 0))
		synctest.Wait()
		b.Update(noWeb("10.0.0.1"))
		wantCalls(t, b, call{"apply", 0, "10.0.0.1"}, call{"apply", 0, "-10.0.0.1"})
		time.Sleep(time.Hour)
		wantCalls(t, b)
		if s := b.Status(); s.Failed != 0 {
			t.Errorf("%d frontends failed, want none", s.Failed)
		}
	})
}

func TestManyRefusalsDoNotFloodTheLog(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.configure(func(d *fakeDataplane) { d.refuse = func(plan.Key) error { return errRefused } })
		var events []model.Event
		for i := range 250 {
			events = append(events, web(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String(), 0))
		}
		b.Update(events...)
		time.Sleep(time.Minute)
		lines := b.logged("refused")
		count := func(text string) (n int) {
			for _, line := range lines {
				if strings.Contains(line, text) {
					n++
				}
			}
			return n
		}
		if got := count("Frontend was refused"); got != 10 {
			t.Errorf("%d of 250 refused frontends named in the log, want 10", got)
		}
		if got := count(`"More frontends were refused" "count"=240`); got != 1 {
			t.Errorf("the others are counted %d times, want once", got)
		}
	})
}

func TestFailedCommitIsReconciled(t *testing.T) {
	var observed []*plan.Change
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.observe(func(c *Commit) { observed = append(observed, c.Change) })
		b.Update(web("10.0.0.1", 0))
		b.sync()
		observed = nil
		b.kernel.failWith(errBroken)
		b.Update(web("10.0.0.2", 0))
		time.Sleep(50 * ms)
		b.Update(web("10.0.0.3", 0), noWeb("10.0.0.1")) // news do not hasten a short wait
		time.Sleep(700 * ms)
		wantCalls(t, b, call{"apply", 0, "10.0.0.2"},
			call{"reconcile", 100 * ms, "10.0.0.2 10.0.0.3"},
			call{"reconcile", 300 * ms, "10.0.0.2 10.0.0.3"},
			call{"reconcile", 700 * ms, "10.0.0.2 10.0.0.3"})
		if len(observed) > 0 {
			t.Errorf("observer was called with %d commits that failed", len(observed))
		}
		wantLogged(t, b, `"msg"="Programming failed" "error"="no buffer space"`, 1)

		b.kernel.failWith(nil)
		time.Sleep(time.Hour)
		wantCalls(t, b, call{"reconcile", 1500 * ms, "10.0.0.2 10.0.0.3"})
		wantContent(t, b, "10.0.0.2 10.0.0.3")
		wantLogged(t, b, `"msg"="Programmed"`, 1)
		var keys []plan.Key
		for _, f := range observed[0].Set {
			keys = append(keys, f.Key)
		}
		if diff := cmp.Diff([]plan.Key{webKey("10.0.0.2"), webKey("10.0.0.3")}, keys, cmpopts.EquateComparable(plan.Key{})); diff != "" {
			t.Errorf("the observer misses what failed at first (-want +got):\n%s", diff)
		}
		if len(observed) != 1 || len(observed[0].Removed) != 1 {
			t.Errorf("observer got %+v", observed)
		}

		b.Update(web("10.0.0.4", 0))
		wantCalls(t, b, call{"apply", time.Hour + 750*ms, "10.0.0.4"})
	})
}

func TestEventsShortenBackoff(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.kernel.failWith(errBroken)
		b.sync()
		// Tries at 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3 and 12.7 s; then 12.8 s of wait.
		time.Sleep(13 * time.Second)
		b.kernel.taken()
		b.Update(web("10.0.0.1", 0))
		time.Sleep(time.Second)
		b.Update(web("10.0.0.2", 0))
		wantCalls(t, b)
		time.Sleep(2 * time.Second)
		const third = 15700 * ms // 3 s after the last try
		wantCalls(t, b, call{"reconcile", third, "10.0.0.1 10.0.0.2"})
		b.kernel.failWith(nil)
		time.Sleep(10 * time.Second)
		b.Update(web("10.0.0.3", 0)) // more than 3 s after the last try
		wantCalls(t, b, call{"reconcile", 26 * time.Second, "10.0.0.1 10.0.0.2 10.0.0.3"})
	})
}

func TestAnotherErrorIsLoggedAgain(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.failWith(errBroken)
		b.Update(web("10.0.0.1", 0))
		time.Sleep(time.Second)
		b.kernel.failWith(fmt.Errorf("writing: %w", errBroken))
		time.Sleep(time.Minute)
		wantLogged(t, b, `"msg"="Programming failed" "error"`, 2)
	})
}

func TestRepairRetriesRefusedFrontends(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.kernel.refuseAddr("10.0.0.1", errRefused)
		b.Update(web("10.0.0.1", 0), web("10.0.0.2", 0))
		b.sync()
		time.Sleep(time.Hour) // now it is tried every 30 s
		b.kernel.taken()
		b.kernel.refuseAddr("10.0.0.1", nil)
		b.kernel.configure(func(d *fakeDataplane) { clear(d.frontends) })
		b.kernel.disturbed <- struct{}{}
		wantCalls(t, b, call{"repair", time.Hour, ""}, call{"apply", time.Hour, "10.0.0.1"})
		wantContent(t, b, "10.0.0.1 10.0.0.2")
	})
}

func TestReconcileRetriesRefusedFrontends(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.kernel.refuseAddr("10.0.0.1", errRefused)
		b.Update(web("10.0.0.1", 0), web("10.0.0.2", 0))
		b.sync()
		wantContent(t, b, "10.0.0.2")
		b.kernel.refuseAddr("10.0.0.1", nil)
		b.kernel.configure(func(d *fakeDataplane) { d.cannotRepair = true })
		b.kernel.disturbed <- struct{}{}
		wantCalls(t, b, call{"reconcile", 0, "10.0.0.1 10.0.0.2"})
		if s, _ := b.Frontend(webKey("10.0.0.1")); s.Phase != Programmed {
			t.Errorf("status is %+v", s)
		}
		time.Sleep(time.Hour)
		wantCalls(t, b)
	})
}
