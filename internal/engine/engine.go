package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Planner turns the State into Desired incrementally. It is plan.Planner.
type Planner interface {
	// Update brings Desired up to date and returns the difference. The first
	// call plans everything.
	Update(state *model.State, dirty *model.Dirty) *plan.Change
	// SetConfig plans everything with another configuration, including what is
	// dirty, and returns the difference.
	SetConfig(state *model.State, config plan.Config) *plan.Change
	// Desired returns the live result.
	Desired() *plan.Desired
	// Frontends returns those that a Service holds in Desired.
	Frontends(service model.Name) []*plan.Frontend
	// Evidence returns the inputs to the plan of a Service.
	Evidence(state *model.State, service model.Name) plan.Evidence
}

// Options configures an Engine.
type Options struct {
	Planner   Planner
	Dataplane dataplane.Dataplane
	Logger    logr.Logger
	Clock     clock.Clock // nil for the real one
	// System is what the Dataplane programs.
	System plan.System

	// MinSyncPeriod is the minimum time between the starts of two commits; 0
	// for none.
	MinSyncPeriod time.Duration
	// SyncPeriod is the time between two verifications of the kernel; 0 for
	// never.
	SyncPeriod time.Duration
}

// Engine is the loop between the sources and the dataplane. It is a model.Sink,
// and any goroutine may read its status.
type Engine struct {
	planner   Planner
	dataplane dataplane.Dataplane
	log       logr.Logger
	clock     clock.Clock
	system    plan.System
	observers []Observer

	minSyncPeriod time.Duration
	syncPeriod    atomic.Int64 // a time.Duration, for Status

	inbox    *inbox
	statuses *statusTable
	helpers  sync.WaitGroup // goroutines that must end before Run does

	// planMu is held while the loop modifies the State or the planner, and
	// never across a system call. The loop itself reads without it.
	planMu sync.RWMutex
	// version counts the modifications under planMu.
	version uint64

	// All below belongs to the goroutine of Run.

	state   *model.State
	dirty   model.Dirty  // changes of state that are not planned yet
	config  *plan.Config // not planned yet
	synced  bool         // sources are in sync, and planning has begun
	backlog *backlog     // planned and not yet in the kernel
	events  eventLog     // that led to dirty and backlog

	lastStart time.Time // of the last commit
	// lastReconcile is when the last reconcile ended.
	lastReconcile time.Time
	repair        repair
	verifier      verifier
	problems      problemLog
}

// New returns an Engine that is idle until Run.
func New(o Options) *Engine {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	e := &Engine{
		planner:       o.Planner,
		dataplane:     o.Dataplane,
		log:           o.Logger,
		clock:         o.Clock,
		system:        o.System,
		minSyncPeriod: o.MinSyncPeriod,
		inbox:         newInbox(o.Clock),
		statuses:      newStatusTable(),
		state:         model.NewState(),
		dirty:         model.Dirty{All: true},
		verifier:      verifier{period: o.SyncPeriod},
		problems:      problemLog{log: o.Logger},
		backlog:       newBacklog(),
	}
	e.syncPeriod.Store(int64(o.SyncPeriod))
	if d, ok := o.Dataplane.(dataplane.ProgressReporter); ok {
		d.OnProgress(e.progressed)
	}
	return e
}

// Run works until ctx is done, and then returns nil and leaves the kernel as it
// is. It is called once.
func (e *Engine) Run(ctx context.Context) error {
	defer e.helpers.Wait()
	e.helpers.Go(func() { e.watchDisturbances(ctx) })
	for ctx.Err() == nil {
		e.absorb(ctx)
		now := e.clock.Now()
		e.verifyIfDue(ctx, now)
		if at, ok := e.repairAt(); ok && !now.Before(at) {
			e.repairDisturbance(ctx)
		} else if at, ok := e.commitAt(); ok && !now.Before(at) {
			e.commit(ctx)
		} else {
			e.sleep(ctx, now)
		}
	}
	return nil
}

// sleep waits until something arrived or something is due.
func (e *Engine) sleep(ctx context.Context, now time.Time) {
	var due <-chan time.Time
	if at, ok := e.nextDue(); ok {
		timer := e.clock.NewTimer(at.Sub(now))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-e.inbox.wake:
	case <-due:
	}
}

func (e *Engine) nextDue() (at time.Time, ok bool) {
	for _, due := range []func() (time.Time, bool){e.commitAt, e.repairAt, e.verifyAt} {
		if other, also := due(); also && (!ok || other.Before(at)) {
			at, ok = other, true
		}
	}
	return at, ok
}

// absorb takes the batch, and plans the events in it once the sources are in
// sync. Until then the State is only filled.
func (e *Engine) absorb(ctx context.Context) {
	m, synced := e.inbox.take()
	if m.verification != nil {
		e.verified(ctx, m.verification)
	}
	if m.disturbed {
		e.disturbed()
	}
	if m.periods != nil {
		e.minSyncPeriod, e.verifier.period = m.periods.minSync, m.periods.sync
		e.verifier.postpone(e.clock.Now())
	}
	if m.config != nil {
		e.config = m.config
	}
	switch {
	case !synced:
		e.learn(m.events)
	case !e.synced:
		e.learn(m.events)
		e.begin()
	case !m.since.IsZero():
		e.plan(m.since, m.events)
	}
}

// learn applies events to the State without planning them.
func (e *Engine) learn(events []model.Event) {
	e.planMu.Lock()
	defer e.planMu.Unlock()
	e.apply(events)
}

// apply applies events to the State. The caller holds planMu.
func (e *Engine) apply(events []model.Event) {
	e.version++
	e.state.Grow(len(events))
	for _, event := range events {
		e.events.take(event, e.state, e.synced)
		e.state.Apply(&e.dirty, event)
	}
}

// begin plans everything for the first time and requests a Reconcile with what
// an earlier process left in the kernel.
func (e *Engine) begin() {
	now := e.clock.Now()
	e.log.Info("Sources are in sync", "revision", e.state.Revision(), "services", len(e.state.Services()))
	e.synced = true
	e.repair.need(now)
	e.plan(now, nil)
}

// plan turns events and other dirty state into a change and queues it. since is
// when the oldest event arrived.
func (e *Engine) plan(since time.Time, events []model.Event) {
	e.statuses.queued(since)
	e.events.since = since
	change := e.update(events, since)
	desired := e.planner.Desired()
	if change.Problems {
		e.problems.update(desired.Problems)
	}
	e.repair.hasten()
	if change.Empty() && e.backlog.empty() && !e.repair.needed {
		e.events.planned(e.backlog)
		now := e.clock.Now()
		e.finish(&Commit{Change: change, Desired: desired, Planned: true, Begin: now, End: now, Events: e.events.taken(e.backlog)})
		return
	}
	e.backlog.add(change, e.portionSize())
	e.events.planned(e.backlog)
}

// update modifies State and Desired together, and what is pending, so that no reader
// sees one without the others.
func (e *Engine) update(events []model.Event, since time.Time) (change *plan.Change) {
	e.planMu.Lock()
	defer e.planMu.Unlock()
	e.apply(events)
	dirty, config := e.dirty, e.config
	e.dirty, e.config = model.Dirty{}, nil
	e.events.touch(&dirty, config != nil)
	if config != nil {
		change = e.planner.SetConfig(e.state, *config)
	} else {
		change = e.planner.Update(e.state, &dirty)
	}
	e.statuses.planned(change, since, len(e.planner.Desired().Frontends))
	return change
}
