package engine

import (
	"context"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
)

// mostFailures is how many refused frontends one commit logs by name.
const mostFailures = 10

// commit is one write to the kernel and what came of it.
type commit struct {
	change     *plan.Change
	desired    *plan.Desired // what the change leads to
	planned    bool          // it brings what was planned, and is no mere repair or retry
	reconcile  bool          // it brings everything
	repair     bool          // it mends what somebody else changed
	start, end time.Time     // start is zero when the kernel had nothing to do
	result     dataplane.Result
}

func (c *commit) duration() time.Duration {
	if c.start.IsZero() {
		return 0
	}
	return c.end.Sub(c.start)
}

// commitAt is when the next commit may start, if there is something to commit.
// While a repair is needed what is planned waits for it: the kernel may lack
// what the change builds on, and the repair brings it along.
func (e *Engine) commitAt() (at time.Time, ok bool) {
	switch {
	case e.repair.needed:
		at = e.repair.notBefore
	case len(e.queue) > 0:
	default:
		if at, ok = e.ledger.retryAt(); !ok {
			return at, false
		}
	}
	return latest(at, e.lastStart.Add(e.minSyncPeriod)), true
}

// mendAt is when to mend what somebody else changed, if there is something.
func (e *Engine) mendAt() (at time.Time, ok bool) {
	at, ok = e.repair.mendAt()
	return latest(at, e.lastStart.Add(e.minSyncPeriod)), ok
}

// commit writes to the kernel all that is planned and all that is due for
// another try.
func (e *Engine) commit(ctx context.Context) {
	c := commit{
		desired:   e.planner.Desired(),
		planned:   len(e.queue) > 0,
		reconcile: e.repair.needed,
		start:     e.clock.Now(),
	}
	retries := e.ledger.takeRetries(c.start, c.reconcile)
	if !c.planned && !c.reconcile && len(retries) == 0 {
		return // what was to be tried again has been programmed with a change
	}
	if len(retries) > 0 || !c.planned {
		c.change = combine(append(e.queue, e.retryChange(retries)))
	} else {
		c.change = combine(e.queue)
	}
	if c.planned {
		e.queue = []*plan.Change{c.change}
	}
	e.lastStart = c.start
	e.ledger.writes(c.start)
	if c.reconcile {
		c.repair = e.repair.start()
		c.result = e.dataplane.Reconcile(ctx, c.desired)
	} else {
		c.result = e.dataplane.Apply(ctx, c.change)
	}
	e.ledger.wrote()
	c.end = e.clock.Now()
	if c.repair {
		e.repair.end(c.end, c.duration())
	}
	if c.result.Err != nil {
		e.fail(ctx, c)
		return
	}
	e.queue = nil
	if c.reconcile {
		e.repair.succeed()
		e.verifier.postpone(c.end)
	}
	e.finish(c)
}

// retryChange hands over refused frontends again, as they are desired now.
func (e *Engine) retryChange(keys []plan.Key) *plan.Change {
	change := &plan.Change{Revision: e.state.Revision()}
	frontends := e.planner.Desired().Frontends
	for _, key := range keys {
		if f := frontends[key]; f != nil {
			change.Set = append(change.Set, f)
		} else {
			change.Removed = append(change.Removed, key)
		}
	}
	return change
}

// fail keeps what could not be written for the reconcile that is now needed.
func (e *Engine) fail(ctx context.Context, c commit) {
	if ctx.Err() != nil {
		return // interrupted by the end of Run
	}
	err := c.result.Err
	delay := e.repair.fail(c.end)
	e.ledger.broke(c)
	if text := err.Error(); text != e.repair.lastError {
		e.repair.lastError = text
		e.log.Error(err, "Programming failed", "revision", c.change.Revision, "retry", delay)
	} else {
		e.log.V(1).Info("Programming failed again", "err", text, "revision", c.change.Revision,
			"failures", e.repair.failures, "retry", delay)
	}
}

// finish tells everybody of a commit that succeeded.
func (e *Engine) finish(c commit) {
	outcome := e.ledger.committed(c)
	for i, f := range outcome.news {
		if i == mostFailures {
			e.log.Info("More frontends were refused", "count", len(outcome.news)-i)
			break
		}
		e.log.Error(f.Err, "Frontend was refused", "frontend", f.Key.String(),
			"removing", f.Removing, "retry", f.Retry.Sub(c.end))
	}
	e.logCommit(c, outcome)
	e.onCommit(c.change, c.result)
}

// logCommit writes the line by which one follows the proxy's work. A retry
// that changes nothing is not worth it.
func (e *Engine) logCommit(c commit, o outcome) {
	log, message := e.log, "Programmed"
	switch {
	case c.planned:
	case c.reconcile, c.repair:
		message = "Repaired"
	default:
		message = "Tried refused frontends again"
		if o.recovered == 0 {
			log = log.V(1)
		}
	}
	log.Info(message, "revision", c.change.Revision,
		"set", len(c.change.Set), "removed", len(c.change.Removed),
		"transactions", c.result.Transactions, "elements", c.result.Elements,
		"failed", len(c.result.Failed), "duration", c.duration())
}
