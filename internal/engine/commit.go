package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"sluice/internal/base/printable"
	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// maxLoggedFailures is how many refused frontends of one commit are logged by
// name.
const maxLoggedFailures = 10

// commitAt returns when the next commit may start, if there is something to
// commit: at once, if it is the rest of what was begun. While a reconcile is
// needed, planned changes wait for it: the kernel may lack what they build on, and
// the reconcile includes them.
func (e *Engine) commitAt() (at time.Time, ok bool) {
	switch {
	case e.repair.needed:
		at = e.repair.notBefore
	case e.backlog.begun:
		return at, true
	case !e.backlog.empty():
	default:
		if at, ok = e.statuses.retryAt(); !ok {
			return at, false
		}
	}
	return latest(at, e.lastStart.Add(e.minSyncPeriod)), true
}

// repairAt returns when to repair foreign changes, if there are any.
func (e *Engine) repairAt() (at time.Time, ok bool) {
	at, ok = e.repair.disturbedAt()
	return latest(at, e.lastStart.Add(e.minSyncPeriod)), ok
}

// commit writes a portion of what is planned, and every frontend that is due for
// a retry, to the kernel.
func (e *Engine) commit(ctx context.Context) {
	c := &Commit{
		Kind:    Apply,
		Desired: e.planner.Desired(),
		Planned: !e.backlog.empty(),
		Begin:   e.clock.Now(),
	}
	size := e.portionSize()
	if e.repair.needed {
		c.Kind = Reconcile
	}
	retries := e.statuses.takeRetries(c.Begin, c.Kind == Reconcile)
	if !c.Planned && c.Kind == Apply && len(retries) == 0 {
		return // the retries have been programmed with a change already
	}
	if len(retries) > 0 || !c.Planned {
		e.backlog.add(e.retryChange(retries), size)
	}
	c.Change = e.backlog.next(size)
	e.write(ctx, c)
	if c.Result.Err != nil {
		e.fail(ctx, c)
		return
	}
	e.backlog.done(c.Change, c.Result.Left)
	c.Change = without(c.Change, c.Result.Left)
	c.Waiting = e.backlog.waiting()
	c.Events = e.events.taken(e.backlog)
	if c.Kind == Reconcile {
		e.repair.succeed()
		e.verifier.reconciled(c.End, c.Result.Unread)
		e.lastReconcile = c.End
	}
	e.finish(c)
}

// portionSize returns how much of what is planned is written next, 0 for all.
func (e *Engine) portionSize() int {
	if e.repair.needed {
		return 0
	}
	if d, ok := e.dataplane.(dataplane.Portioner); ok {
		return d.Portion()
	}
	return portion
}

// without returns the part of a change that is not left.
func without(c *plan.Change, left map[plan.Key]struct{}) *plan.Change {
	if len(left) == 0 {
		return c
	}
	is := func(key plan.Key) bool { _, ok := left[key]; return ok }
	part := *c
	part.Set = slices.DeleteFunc(slices.Clone(c.Set), func(f *plan.Frontend) bool { return is(f.Key) })
	part.Removed = slices.DeleteFunc(slices.Clone(c.Removed), is)
	part.Before = maps.Clone(c.Before)
	maps.DeleteFunc(part.Before, func(key plan.Key, _ *plan.Frontend) bool { return is(key) })
	return &part
}

// write calls the dataplane and measures how long it takes.
func (e *Engine) write(ctx context.Context, c *Commit) {
	e.lastStart = c.Begin
	e.statuses.writes(c.Begin)
	disturbed := false
	switch c.Kind {
	case Apply:
		c.Result = e.dataplane.Apply(ctx, c.Change)
	case Reconcile:
		disturbed = e.repair.start()
		c.Result = e.dataplane.Reconcile(ctx, c.Desired)
	case Repair:
		disturbed, e.repair.disturbed = true, false
		c.Result = e.dataplane.Repair(ctx)
	}
	e.statuses.wrote()
	c.End = e.clock.Now()
	if disturbed {
		e.repair.end(c.End, c.Duration())
	}
}

// retryChange returns a change that sets refused frontends as they are desired
// now, which is what observers know unless a change of theirs waits.
func (e *Engine) retryChange(keys []plan.Key) *plan.Change {
	change := &plan.Change{Revision: e.state.Revision(), Before: map[plan.Key]*plan.Frontend{}}
	frontends := e.planner.Desired().Frontends
	for _, key := range keys {
		if f := frontends[key]; f != nil {
			change.Set = append(change.Set, f)
			change.Before[key] = f
		} else {
			change.Removed = append(change.Removed, key)
		}
	}
	return change
}

// fail requests a reconcile. What could not be written stays queued for it.
func (e *Engine) fail(ctx context.Context, c *Commit) {
	if ctx.Err() != nil {
		return // Run is ending
	}
	err := c.Result.Err
	delay := e.repair.fail(c.End)
	e.statuses.commitFailed(c)
	if text := err.Error(); text != e.repair.lastError {
		e.repair.lastError = text
		e.log.Error(err, "Programming failed", "revision", c.Change.Revision, "retry", delay)
	} else {
		e.log.V(1).Info("Programming failed again", "err", text, "revision", c.Change.Revision,
			"failures", e.repair.failures, "retry", delay)
	}
}

// finish updates the status and notifies observers of a successful commit.
func (e *Engine) finish(c *Commit) {
	outcome := e.statuses.committed(c)
	for i, f := range outcome.news {
		if i == maxLoggedFailures {
			e.log.Info("More frontends were refused", "count", len(outcome.news)-i)
			break
		}
		e.log.Error(f.Err, "Frontend was refused", "frontend", f.Key.String(),
			"removing", f.Removing, "retry", f.Retry.Sub(c.End))
	}
	e.logCommit(c, outcome)
	e.tell(c)
}

// tell notifies observers.
func (e *Engine) tell(c *Commit) {
	c.Comparing = e.verifier.comparing
	c.Frontends = func(service model.Name) []*plan.Frontend {
		return e.backlog.told(service, e.planner.Frontends(service))
	}
	for _, o := range e.observers {
		o.Committed(c)
	}
}

// logCommit writes one line per commit. Retries that change nothing are logged
// at a higher verbosity.
func (e *Engine) logCommit(c *Commit, o outcome) {
	log, message := e.log, "Programmed"
	switch {
	case c.Planned:
	case c.Full():
		message = "Repaired"
	default:
		message = "Tried refused frontends again"
		if o.recovered == 0 {
			log = log.V(1)
		}
	}
	if c.Waiting > 0 {
		log, message = log.V(logPortions).WithValues("waiting", c.Waiting), message+" a portion"
	}
	log.Info(message, "revision", c.Change.Revision,
		"set", len(c.Change.Set), "removed", len(c.Change.Removed),
		"transactions", c.Result.Transactions, "elements", c.Result.Elements,
		"failed", len(c.Result.Failed), "duration", c.Duration())
	e.logDetails(c)
}

// Verbosities of what a commit was about.
const (
	logPortions  = 2 // each commit, also if it is only a portion
	logServices  = 4 // names of the Services
	logFrontends = 6 // each frontend, with its endpoints
)

// maxLoggedServices is how many Services of a commit are logged by name.
const maxLoggedServices = 100

// logDetails logs what a commit was about, at higher verbosities.
func (e *Engine) logDetails(c *Commit) {
	if log := e.log.V(logServices); log.Enabled() && !c.Change.Empty() {
		var names []string
		seen := map[model.Name]struct{}{}
		for _, f := range c.Change.Set {
			if _, again := seen[f.Service]; !again {
				seen[f.Service] = struct{}{}
				names = append(names, f.Service.String())
			}
		}
		log.Info("Services of the commit", "revision", c.Change.Revision, "count", len(names), "services", names[:min(len(names), maxLoggedServices)],
			"removedFrontends", len(c.Change.Removed))
	}
	log := e.log.V(logFrontends)
	if !log.Enabled() {
		return
	}
	for _, f := range c.Change.Set {
		for _, route := range f.Routes() {
			log.Info("Set a frontend", "frontend", f.Key.String(), "service", f.Service.String(), "outside", route == f.Outside,
				"endpoints", printable.List(route.Endpoints, func(e plan.Endpoint) string { return e.String() }))
		}
	}
	for _, key := range c.Change.Removed {
		log.Info("Removed a frontend", "frontend", key.String())
	}
}
