package engine

import (
	"context"
	"time"

	"sluice/internal/backoff"
	"sluice/internal/plan"
)

const (
	// newsDelay bounds the wait for the next try after a failure when there
	// are new events to program.
	newsDelay = 3 * time.Second
	// repairGap is the least time between two repairs of what somebody else
	// broke, should they do it in a loop. Repairs that take long are repairShare
	// times as far apart, but no further than mostGap.
	repairGap    = 10 * time.Millisecond
	repairShare  = 10
	maxRepairGap = 500 * time.Millisecond
	// episodeGap is how long it must be quiet before a disturbance is news.
	episodeGap = time.Minute
)

// repair says whether and when the kernel must be mended: as a whole, or where
// somebody else changed it.
type repair struct {
	needed    bool // as a whole
	notBefore time.Time

	failures    int // commits that failed as a whole since one succeeded
	lastFailure time.Time
	lastError   string

	disturbed       bool // somebody else changed something
	lastDisturbance time.Time
	gapEnds         time.Time // when the next disturbance may be looked at

	started uint64 // reconciles so far
}

// need asks for a reconcile, unless one is on its way already.
func (r *repair) need(at time.Time) {
	if !r.needed {
		r.needed, r.notBefore = true, at
	}
}

// start notes that a reconcile begins, which mends everything, and tells whether it
// is for a disturbance.
func (r *repair) start() (disturbed bool) {
	r.started++
	disturbed, r.disturbed = r.disturbed, false
	return disturbed
}

// end notes how long it took to mend what somebody else changed.
func (r *repair) end(now time.Time, took time.Duration) {
	r.gapEnds = now.Add(min(max(repairShare*took, repairGap), maxRepairGap))
}

func (r *repair) succeed() {
	r.needed, r.failures, r.lastError = false, 0, ""
}

// fail notes that a commit failed as a whole and says when to try again.
func (r *repair) fail(now time.Time) (delay time.Duration) {
	r.failures++
	delay = backoff.After(r.failures)
	r.needed, r.notBefore, r.lastFailure = true, now.Add(delay), now
	return delay
}

// hasten shortens a long back-off because there is something new to program.
func (r *repair) hasten() {
	if soon := r.lastFailure.Add(newsDelay); r.failures > 0 && soon.Before(r.notBefore) {
		r.notBefore = soon
	}
}

// disturb notes that somebody else changed what is ours, and tells whether
// that is the first time in a while.
func (r *repair) disturb(now time.Time) (news bool) {
	news = now.Sub(r.lastDisturbance) > episodeGap
	r.lastDisturbance = now
	r.disturbed = true
	// A back-off is for what fails for reasons of its own, not for what somebody
	// else broke meanwhile.
	if at := latest(now, r.gapEnds); r.needed && at.Before(r.notBefore) {
		r.notBefore = at
	}
	return news
}

// disturbedAt is when to look at what somebody else changed, if they did. A reconcile
// does that anyway.
func (r *repair) disturbedAt() (at time.Time, ok bool) { return r.gapEnds, r.disturbed && !r.needed }

// watchDisturbances forwards what the dataplane notices to the loop, which
// would not see it in time while commits follow one another.
func (e *Engine) watchDisturbances(ctx context.Context) {
	disturbed := e.dataplane.Disturbed()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-disturbed:
			if !open {
				return
			}
			e.inbox.post(func(m *mail) { m.disturbed = true })
		}
	}
}

// repairDisturbance has the dataplane repairDisturbance what somebody else changed. Planned changes do not
// come with it.
func (e *Engine) repairDisturbance(ctx context.Context) {
	c := &Commit{
		Kind:    Repair,
		Change:  &plan.Change{Revision: e.statuses.read().ProgrammedRevision},
		Desired: e.planner.Desired(),
		Begin:   e.clock.Now(),
	}
	e.write(ctx, c)
	switch {
	case ctx.Err() != nil:
	case c.Result.Err != nil:
		e.log.V(1).Info("What somebody else changed cannot be repaired alone: comparing everything", "reason", c.Result.Err.Error())
		e.repair.need(c.End)
		e.repair.disturbed = true // which is what the reconcile is for
	case c.Result.Transactions > 0 || len(c.Result.Failed) > 0:
		e.finish(c)
	default:
		e.log.V(1).Info("What somebody else did left nothing to repair")
	}
}

// disturbed plans a repair. Before the first commit there is nothing of ours
// to repair.
func (e *Engine) disturbed() {
	if !e.synced {
		return
	}
	log := e.log.V(1)
	if e.repair.disturb(e.clock.Now()) {
		log = e.log
	}
	log.Info("Somebody else changed what is ours in the kernel, repairing it")
}

// latest is the later of two times.
func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
