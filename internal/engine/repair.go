package engine

import (
	"context"
	"time"

	"sluice/internal/backoff"
)

const (
	// newsDelay bounds the wait for the next try after a failure when there
	// are new events to program.
	newsDelay = 3 * time.Second
	// repairGap is the least time between two repairs of what somebody else
	// broke, should they do it in a loop.
	repairGap = time.Second
	// episodeGap is how long it must be quiet before a disturbance is news.
	episodeGap = time.Minute
)

// repair says whether and when the kernel as a whole must be reconciled.
type repair struct {
	needed    bool
	notBefore time.Time

	failures    int // commits that failed as a whole since one succeeded
	lastFailure time.Time
	lastError   string

	disturbed       bool // the repair that is needed is for a disturbance
	lastDisturbance time.Time
	lastGapped      time.Time // start of the last repair for a disturbance

	started uint64 // reconciles so far
}

// need asks for a reconcile, unless one is on its way already.
func (r *repair) need(at time.Time) {
	if !r.needed {
		r.needed, r.notBefore = true, at
	}
}

func (r *repair) start(now time.Time) {
	r.started++
	if r.disturbed {
		r.disturbed, r.lastGapped = false, now
	}
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
	r.need(latest(now, r.lastGapped.Add(repairGap)))
	return news
}

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
