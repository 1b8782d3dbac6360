package conntrack

import (
	"context"
	"time"

	"sluice/internal/plan"
)

// tally is what a pass came across.
type tally struct {
	seen, deleted int
	deletedIPv6   int           // of those deleted
	cost          time.Duration // of processor time
}

// Pass is what one pass over the table did.
type Pass struct {
	Duration    time.Duration
	Seen        int   // entries looked at
	Deleted     int   // entries removed
	DeletedIPv6 int   // those of them that were of IPv6
	Err         error // why it did not get to its end
}

// pass goes over the table once.
func (r *Reconciler) pass(ctx context.Context) {
	start := r.clock.Now()
	spared := 0
	t, err := r.sweep(ctx, r.tracks, func(f *flow) bool {
		switch {
		case !r.index.stale(f):
			return false
		case r.isPlanned(f):
			spared++
			return false
		}
		return true
	})
	end := r.clock.Now()
	took := end.Sub(start)
	r.onPass(Pass{took, t.seen, t.deleted, t.deletedIPv6, err})
	r.count(t, took, err)
	r.notBefore = end.Add(max(rest, restFactor*t.cost))
	if err != nil {
		if ctx.Err() == nil {
			r.fail(end, err)
		}
		return
	}
	r.due, r.failures, r.lastError = false, 0, ""
	r.index.forget()
	if spared > 0 {
		r.lookAgain()
	}
	log := r.log.V(4)
	if t.deleted > 0 {
		log = r.log.V(2)
	}
	log.Info("Swept the connection tracking table", "seen", t.seen, "deleted", t.deleted, "duration", took)
}

// isPlanned tells whether a flow that should not be there is about to be right:
// a commit under way is in the kernel before it is known here, and its flows
// must not be taken for stale ones.
func (r *Reconciler) isPlanned(f *flow) (planned bool) {
	r.desired(func(d *plan.Desired) {
		now := view{d.Frontends, d.Settings.NodePortIPs}
		planned = now.serves(f)
	})
	return planned
}

// lookAgain makes the next commit look at everything, should the plan that
// spared a flow not come true.
func (r *Reconciler) lookAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending.everything = true
}

func (r *Reconciler) count(t tally, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Passes++
	r.stats.Seen += uint64(t.seen)
	r.stats.Deleted += uint64(t.deleted)
	r.stats.LastDuration = took
	if err != nil {
		r.stats.Failures++
	}
}

// fail has the pass made up for later. What is due stays due.
func (r *Reconciler) fail(now time.Time, err error) {
	r.failures++
	delay := backoff(r.failures)
	if at := now.Add(delay); at.After(r.notBefore) {
		r.notBefore = at
	}
	if text := err.Error(); text != r.lastError {
		r.lastError = text
		r.log.Error(err, "Cannot sweep the connection tracking table", "retry", delay)
	} else {
		r.log.V(1).Info("Still cannot sweep the connection tracking table", "err", text,
			"failures", r.failures, "retry", delay)
	}
	r.poke()
}

// backoff is how long to wait after so many failures in a row.
func backoff(failures int) time.Duration {
	delay := backoffFirst
	for ; failures > 1 && delay < backoffMost; failures-- {
		delay *= 2
	}
	return min(delay, backoffMost)
}
