package engine

import (
	"context"
	"fmt"
	"time"

	"sluice/internal/base/backoff"
	"sluice/internal/base/printable"
	"sluice/internal/plan"
)

const (
	// newsDelay bounds the wait for the next try after a failure when there are
	// new events to program.
	newsDelay = 3 * time.Second
	// repairGap is the minimum time between two repairs of foreign changes, in
	// case they are made in a loop. Repairs that take long are repairShare
	// times as far apart, but no further than maxRepairGap.
	repairGap    = 10 * time.Millisecond
	repairShare  = 10
	maxRepairGap = 500 * time.Millisecond
	// episodeGap is how long it must be quiet before a disturbance is logged
	// again.
	episodeGap = time.Minute
)

// repair schedules reconciles of the whole kernel state, and repairs of foreign
// changes.
type repair struct {
	needed    bool // a reconcile
	notBefore time.Time

	failures    int // commits that failed as a whole since one succeeded
	lastFailure time.Time
	lastError   string

	disturbed       bool // there are foreign changes to repair
	lastDisturbance time.Time
	gapEnds         time.Time // when the next repair may start

	started uint64 // reconciles so far
}

// need requests a reconcile, unless one is scheduled already.
func (r *repair) need(at time.Time) {
	if !r.needed {
		r.needed, r.notBefore = true, at
	}
}

// start records that a reconcile begins, which repairs everything, and reports
// whether it was caused by a disturbance.
func (r *repair) start() (disturbed bool) {
	r.started++
	disturbed, r.disturbed = r.disturbed, false
	return disturbed
}

// end records how long it took to repair foreign changes.
func (r *repair) end(now time.Time, took time.Duration) {
	r.gapEnds = now.Add(min(max(repairShare*took, repairGap), maxRepairGap))
}

func (r *repair) succeed() {
	r.needed, r.failures, r.lastError = false, 0, ""
}

// fail records that a commit failed as a whole and returns the delay of the
// next try.
func (r *repair) fail(now time.Time) (delay time.Duration) {
	r.failures++
	delay = backoff.After(r.failures)
	r.needed, r.notBefore, r.lastFailure = true, now.Add(delay), now
	return delay
}

// hasten shortens a long backoff because there is something new to program.
func (r *repair) hasten() {
	if soon := r.lastFailure.Add(newsDelay); r.failures > 0 && soon.Before(r.notBefore) {
		r.notBefore = soon
	}
}

// disturb records a foreign change, and reports whether it is the first in a
// while.
func (r *repair) disturb(now time.Time) (news bool) {
	news = now.Sub(r.lastDisturbance) > episodeGap
	r.lastDisturbance = now
	r.disturbed = true
	// The backoff is for failures of our own commits, not for foreign
	// changes made meanwhile.
	if at := latest(now, r.gapEnds); r.needed && at.Before(r.notBefore) {
		r.notBefore = at
	}
	return news
}

// disturbedAt returns when to repair foreign changes, if there are any. A
// reconcile repairs them anyway.
func (r *repair) disturbedAt() (at time.Time, ok bool) { return r.gapEnds, r.disturbed && !r.needed }

// watchDisturbances forwards the dataplane's notifications to the loop, which
// would not see them in time during a series of commits.
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
			e.inbox.post(func(b *batch) { b.disturbed = true })
		}
	}
}

// repairDisturbance repairs foreign changes. It does not include planned
// changes.
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
		e.log.V(1).Info("Foreign changes cannot be repaired alone, reconciling everything", "reason", c.Result.Err.Error())
		e.repair.need(c.End)
		e.repair.disturbed = true // the reconcile is for it
	case c.Result.Transactions > 0 || len(c.Result.Failed) > 0:
		e.finish(c)
		e.compared(c.End)
	default:
		e.log.V(1).Info("Foreign changes left nothing to repair")
		e.compared(c.End)
	}
}

// disturbed schedules a repair. Before the first commit there is nothing to
// repair.
func (e *Engine) disturbed() {
	if !e.synced {
		return
	}
	log := e.log.V(1)
	if e.repair.disturb(e.clock.Now()) {
		log = e.log
	}
	if e.verifier.comparing {
		log.Info(printable.Sentence(e.system.String()) + " differs from what is desired, repairing it")
		return
	}
	log.Info(fmt.Sprintf("Another process changed our rules in %s, repairing them", e.system))
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
