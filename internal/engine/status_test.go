package engine

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/plan"
)

func wantStatus(t *testing.T, b *fixture, addr string, want FrontendStatus) {
	t.Helper()
	synctest.Wait()
	got, ok := b.Frontend(webKey(addr))
	if !ok {
		t.Errorf("%s has no status, want %+v", addr, want)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateErrors(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("status of %s (-want +got):\n%s", addr, diff)
	}
}

func TestPendingThenProgrammed(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		start := b.kernel.start
		b.sync()
		if s, ok := b.Frontend(webKey("10.0.0.1")); ok {
			t.Errorf("an unwanted frontend has status %+v", s)
		}
		time.Sleep(time.Second)
		release := b.kernel.holdCommits()
		b.Update(web("10.0.0.1", 0))
		time.Sleep(time.Second)
		wantStatus(t, b, "10.0.0.1", FrontendStatus{Phase: Pending, Revision: 1, Since: start.Add(time.Second)})
		release()
		wantStatus(t, b, "10.0.0.1", FrontendStatus{Phase: Programmed, Revision: 1, Since: start.Add(2 * time.Second)})

		var before *plan.Frontend
		b.Inspect(func(v View) { before = v.Desired.Frontends[webKey("10.0.0.1")] })
		release = b.kernel.holdCommits()
		b.Update(noWeb("10.0.0.1"))
		wantStatus(t, b, "10.0.0.1", FrontendStatus{Phase: Pending, Removing: true, Revision: 2, Since: start.Add(2 * time.Second), Before: before})
		release()
		synctest.Wait()
		if s, ok := b.Frontend(webKey("10.0.0.1")); ok {
			t.Errorf("a frontend that was removed has status %+v", s)
		}
	})
}

func TestStatusOfRefusedFrontend(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		start := b.kernel.start
		b.sync()
		b.kernel.refuseAddr("10.0.0.1", errRefused)
		b.Update(web("10.0.0.1", 0), web("10.0.0.2", 0))
		time.Sleep(200 * ms)
		want := FrontendStatus{Phase: Failed, Revision: 2, Since: start, Err: errRefused, Attempts: 2, Retry: start.Add(300 * ms)}
		wantStatus(t, b, "10.0.0.1", want)
		failures := []Failure{{webKey("10.0.0.1"), want}}
		if diff := cmp.Diff(failures, b.Failures(), cmpopts.EquateErrors(), cmpopts.EquateComparable(plan.Key{})); diff != "" {
			t.Errorf("failures (-want +got):\n%s", diff)
		}
		if s := b.Status(); s.Failed != 1 || s.Programmed != 1 || s.Frontends != 2 || !s.PendingSince.IsZero() || !s.FailingSince.IsZero() {
			t.Errorf("one refused frontend must count, and not as a failure of the whole: %+v", s)
		}
	})
}

func TestStatusOfPendingWhileFailing(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		start := b.kernel.start
		b.sync()
		b.kernel.failWith(errBroken)
		b.Update(web("10.0.0.1", 0))
		time.Sleep(time.Minute)
		b.Update(web("10.0.0.1", 1))
		wantStatus(t, b, "10.0.0.1", FrontendStatus{Phase: Pending, Revision: 2, Since: start, Err: errBroken})
		if s := b.Status(); !s.PendingSince.Equal(start) || !s.FailingSince.Equal(start) || !errors.Is(s.LastError, errBroken) || s.FailedCommits == 0 {
			t.Errorf("status does not report the failure: %+v", s)
		}
		b.kernel.failWith(nil)
		time.Sleep(time.Minute)
		s := b.Status()
		if !s.PendingSince.IsZero() || !s.FailingSince.IsZero() || !errors.Is(s.LastError, errBroken) {
			t.Errorf("status still reports the failure: %+v", s)
		}
		if f, _ := b.Frontend(webKey("10.0.0.1")); f.Phase != Programmed {
			t.Errorf("status is %+v", f)
		}
	})
}

func TestSummary(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		start := b.kernel.start
		b.Update(web("10.0.0.1", 0), web("10.0.0.2", 0))
		time.Sleep(time.Hour)
		b.Synced()
		synctest.Wait()
		want := Summary{
			Synced: true, DesiredRevision: 2, ProgrammedRevision: 2, Frontends: 2, Programmed: 2,
			LastCommit: start.Add(time.Hour), Commits: 1, Reconciles: 1, Transactions: 1, Elements: 2,
		}
		if diff := cmp.Diff(want, b.Status()); diff != "" {
			t.Errorf("after the first commit (-want +got):\n%s", diff)
		}

		release := b.kernel.holdCommits()
		b.Update(web("10.0.0.3", 0))
		time.Sleep(time.Second)
		b.Update(web("10.0.0.4", 0))
		time.Sleep(time.Second)
		want.DesiredRevision, want.Frontends, want.Pending = 3, 3, 1
		want.PendingSince, want.WritingSince = start.Add(time.Hour), start.Add(time.Hour)
		if diff := cmp.Diff(want, b.Status()); diff != "" {
			t.Errorf("while a commit is under way (-want +got):\n%s", diff)
		}

		release()
		synctest.Wait()
		want = Summary{
			Synced: true, DesiredRevision: 4, ProgrammedRevision: 4, Frontends: 4, Programmed: 4,
			LastCommit: start.Add(time.Hour + 2*time.Second), Commits: 3, Reconciles: 1, Transactions: 3, Elements: 4,
		}
		if diff := cmp.Diff(want, b.Status()); diff != "" {
			t.Errorf("after all commits (-want +got):\n%s", diff)
		}
	})
}

func TestOutdatedIsNotProgrammed(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0), web("10.0.0.2", 0))
		b.sync()
		defer b.kernel.holdCommits()()
		b.Update(web("10.0.0.1", 1), web("10.0.0.3", 0))
		synctest.Wait()
		if s := b.Status(); s.Programmed != 1 || s.Pending != 2 || s.Frontends != 3 {
			t.Errorf("want one programmed and two pending: %+v", s)
		}
	})
}

func TestChangeDuringCommitIsPending(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		release := b.kernel.holdCommits()
		b.kernel.disturbed <- struct{}{} // a repair: nothing is pending
		time.Sleep(time.Second)
		if s := b.Status(); !s.PendingSince.IsZero() {
			t.Errorf("pending since %s, want nothing pending", s.PendingSince)
		}
		b.Update(web("10.0.0.1", 0))
		queued := time.Now()
		time.Sleep(time.Hour)
		if s := b.Status(); !s.PendingSince.Equal(queued) {
			t.Errorf("pending since %s, want %s", s.PendingSince, queued)
		}
		release()
	})
}

func TestNothingPendingBeforeSync(t *testing.T) {
	e := New(Options{})
	e.Update(web("10.0.0.1", 0))
	if s := e.Status(); s.Synced || !s.PendingSince.IsZero() {
		t.Errorf("status before the start: %+v", s)
	}
	e.Synced()
	if s := e.Status(); s.PendingSince.IsZero() {
		t.Error("nothing is pending although all is there to be programmed")
	}
}

func TestPhasesHaveNames(t *testing.T) {
	for phase, want := range map[Phase]string{Pending: "pending", Programmed: "programmed", Failed: "failed", 9: "unknown"} {
		if got := phase.String(); got != want {
			t.Errorf("phase %d is %q, want %q", phase, got, want)
		}
	}
}
