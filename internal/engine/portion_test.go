package engine

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

// crowd are Services that together are several portions.
func crowd(version uint32) (events []model.Event) {
	for i := range 3 * portion {
		events = append(events, web(fmt.Sprintf("10.1.%d.%d", i/250, i%250), version))
	}
	return events
}

// TestSmallChangeGoesBeforeTheRestOfALargeOne follows a change that arrives while the first portion
// of a large one is written: it is in the second, and the large one goes on without waiting for the sync period.
func TestSmallChangeGoesBeforeTheRestOfALargeOne(t *testing.T) {
	run(t, Options{MinSyncPeriod: time.Minute}, func(t *testing.T, b *fixture) {
		var commits []*Commit
		b.observe(func(c *Commit) { commits = append(commits, c) })
		b.sync()
		time.Sleep(time.Hour)
		synctest.Wait()
		commits = nil
		release := b.kernel.holdCommits()
		b.Update(crowd(0)...)
		synctest.Wait()
		time.Sleep(time.Second)
		arrived := time.Now()
		b.Update(web("10.0.0.1", 0))
		synctest.Wait()
		if s := b.Status(); s.Pending != 3*portion || s.PendingSince.Equal(arrived) {
			t.Errorf("%d frontends are pending since %s", s.Pending, s.PendingSince)
		}
		release()
		synctest.Wait()
		calls := b.kernel.taken()
		if len(calls) < 3 || !strings.HasPrefix(calls[1].What, "10.0.0.1 ") {
			t.Fatalf("the second of %d commits begins with %.40s, want the small change", len(calls), calls[1].What)
		}
		if c := commits[1]; c.Waiting == 0 || !c.Events.Since.Before(arrived) {
			t.Errorf("%d frontends wait, the oldest that were written arrived %s", c.Waiting, c.Events.Since)
		}
		events := 0
		for _, c := range commits {
			events += c.Events.Services
		}
		if events != 3*portion+1 {
			t.Errorf("%d events were observed, want %d", events, 3*portion+1)
		}
		s := b.Status()
		if s.Pending != 0 || !s.PendingSince.IsZero() || s.ProgrammedRevision != s.DesiredRevision || s.Programmed != 3*portion+1 {
			t.Errorf("status at the end: %+v", s)
		}
	})
}

// TestRevisionIsProgrammedWhenAllOfItIs: a portion is not the revision.
func TestRevisionIsProgrammedWhenAllOfItIs(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		var waiting []int
		b.observe(func(c *Commit) {
			if s := b.Status(); (c.Waiting == 0) != (s.ProgrammedRevision == s.DesiredRevision) || s.Pending > c.Waiting {
				t.Errorf("%d frontends wait, status: %+v", c.Waiting, s)
			}
			waiting = append(waiting, c.Waiting)
		})
		b.sync()
		b.Update(crowd(0)...)
		synctest.Wait()
		if len(waiting) < 3 {
			t.Errorf("there were %d commits", len(waiting))
		}
	})
}

// TestFailedPortionIsReconciledWithTheRest: a portion that fails is not lost, nor what waits.
func TestFailedPortionIsReconciledWithTheRest(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.failWith(errBroken)
		b.Update(crowd(0)...)
		synctest.Wait()
		b.kernel.failWith(nil)
		b.kernel.taken()
		time.Sleep(time.Minute)
		calls := b.kernel.taken()
		if len(calls) != 1 || calls[0].Verb != "reconcile" {
			t.Errorf("%d calls, the first is %s", len(calls), calls[0].Verb)
		}
		if n := strings.Count(b.kernel.content(), "10.1."); n != 3*portion {
			t.Errorf("the kernel has %d frontends, want %d", n, 3*portion)
		}
	})
}

// bulkDataplane is a mode that takes all at once.
type bulkDataplane struct{ *fakeDataplane }

func (bulkDataplane) Bulk() {}

var _ dataplane.Bulk = bulkDataplane{}

func TestBulkModeGetsAllAtOnce(t *testing.T) {
	if e := New(Options{Dataplane: bulkDataplane{}}); e.portion != 0 {
		t.Errorf("it is given portions of %d", e.portion)
	}
}
