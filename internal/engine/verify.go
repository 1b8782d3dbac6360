package engine

import (
	"context"
	"fmt"
	"time"

	"sluice/internal/base/printable"
	"sluice/internal/plan"
)

// verification is the result of a Verify.
type verification struct {
	ok  bool
	err error
	// reconciles is how many there were when it began: one that began later has
	// repaired everything that was found.
	reconciles uint64
}

// verifier schedules verifications of the kernel.
type verifier struct {
	period    time.Duration // 0 for never
	next      time.Time
	running   bool
	lastError string

	// comparing says that a reconcile left a part unread, and that it is not known yet to be right:
	// until it was verified, and repaired. due says that it has to be verified.
	comparing, due bool
}

func (v *verifier) postpone(now time.Time) { v.next = now.Add(v.period) }

// reconciled records a reconcile. What it left unread is verified at once.
func (v *verifier) reconciled(now time.Time, unread bool) {
	v.comparing, v.due = unread, unread
	if v.postpone(now); unread {
		v.next = now
	}
}

// comparePause is the time before the comparison of what a reconcile left unread is tried again.
const comparePause = time.Second

// verifyAt returns when the next Verify is due, if any. None is while a
// reconcile is needed, or before the first commit.
func (e *Engine) verifyAt() (at time.Time, ok bool) {
	v := &e.verifier
	if v.period <= 0 && !v.due || v.running || !e.synced || e.repair.needed {
		return time.Time{}, false
	}
	return v.next, true
}

// verifyIfDue starts a Verify in a goroutine of its own, so that reading the
// whole kernel state delays no change.
func (e *Engine) verifyIfDue(ctx context.Context, now time.Time) {
	if at, ok := e.verifyAt(); !ok || now.Before(at) {
		return
	}
	e.verifier.running, e.verifier.due = true, false
	reconciles := e.repair.started
	e.helpers.Go(func() {
		ok, err := e.dataplane.Verify(ctx)
		e.inbox.post(func(b *batch) { b.verification = &verification{ok, err, reconciles} })
	})
}

func (e *Engine) verified(ctx context.Context, v *verification) {
	now := e.clock.Now()
	e.verifier.running = false
	e.verifier.postpone(now)
	if v.err != nil {
		if ctx.Err() != nil {
			return
		}
		if e.verifier.comparing {
			e.verifier.due, e.verifier.next = true, now.Add(comparePause)
		}
		if text := v.err.Error(); text != e.verifier.lastError {
			e.verifier.lastError = text
			e.log.Error(v.err, fmt.Sprintf("Cannot verify what is in %s", e.system), "retry", e.verifier.period)
		} else {
			e.log.V(1).Info(fmt.Sprintf("Still cannot verify what is in %s", e.system), "err", text)
		}
		return
	}
	e.verifier.lastError = ""
	if v.ok {
		e.statuses.verified(now)
	}
	if v.reconciles != e.repair.started {
		return
	}
	if v.ok {
		e.compared(now)
		return
	}
	e.log.Info(printable.Sentence(e.system.String()) + " differs from what was programmed, repairing it")
	e.repair.disturb(now)
}

// compared tells observers that what a reconcile left unread is right, if they do not know that.
func (e *Engine) compared(now time.Time) {
	if !e.verifier.comparing || e.verifier.running || e.verifier.due {
		return
	}
	e.verifier.comparing = false
	e.log.Info(fmt.Sprintf("The rest of what was in %s is compared", e.system), "took", now.Sub(e.lastReconcile))
	e.tell(&Commit{Change: &plan.Change{Revision: e.statuses.read().ProgrammedRevision}, Desired: e.planner.Desired(), Begin: now, End: now})
}
