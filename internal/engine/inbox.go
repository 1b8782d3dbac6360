package engine

import (
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/base/notify"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// batch is what arrived for the loop since it last looked.
type batch struct {
	events []model.Event
	since  time.Time // when the first of events or config arrived
	config *plan.Config

	periods      *periods
	disturbed    bool
	verification *verification
}

// inbox collects what other goroutines have for the loop. Its lock is never
// held across I/O, so that posting never waits for the kernel.
type inbox struct {
	clock clock.PassiveClock
	wake  notify.Signal

	mu      sync.Mutex
	batch   batch
	waiting map[*source]struct{} // sources that are not in sync
	synced  bool
}

func newInbox(c clock.PassiveClock) *inbox {
	return &inbox{
		clock:   c,
		wake:    notify.NewSignal(),
		waiting: map[*source]struct{}{},
	}
}

// post modifies the batch and wakes the loop.
func (b *inbox) post(write func(*batch)) {
	b.mu.Lock()
	write(&b.batch)
	b.mu.Unlock()
	b.wake.Notify()
}

// postChange is post for changes that lead to a commit, whose age is tracked.
func (b *inbox) postChange(write func(*batch)) {
	b.post(func(next *batch) {
		if next.since.IsZero() {
			next.since = b.clock.Now()
		}
		write(next)
	})
}

// take empties the inbox. When synced is true, all events posted before the
// sources were in sync are in this batch or in an earlier one.
func (b *inbox) take() (m batch, synced bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, b.batch = b.batch, batch{}
	return m, b.synced
}

// setSynced records that one source is in sync, or with nil that all are.
func (b *inbox) setSynced(s *source) {
	b.mu.Lock()
	if s == nil {
		clear(b.waiting)
	} else {
		delete(b.waiting, s)
	}
	if len(b.waiting) == 0 {
		b.synced = true
	}
	b.mu.Unlock()
	b.wake.Notify()
}

// pendingSince returns when the oldest change in the inbox arrived. Nothing
// counts as pending before the sources are in sync.
func (b *inbox) pendingSince() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.synced {
		return time.Time{}
	}
	return b.batch.since
}

func (b *inbox) waitingFor() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for s := range b.waiting {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// source is the sink of one of several sources.
type source struct {
	name   string
	engine *Engine
}

func (s *source) Update(events ...model.Event) { s.engine.Update(events...) }
func (s *source) Synced()                      { s.engine.inbox.setSynced(s) }

// AddSource returns a sink for one of several sources: the engine is in sync
// when all of them are. All are added before the first of them starts.
func (e *Engine) AddSource(name string) model.Sink {
	s := &source{name: name, engine: e}
	e.inbox.mu.Lock()
	defer e.inbox.mu.Unlock()
	e.inbox.waiting[s] = struct{}{}
	return s
}

// Update passes on changes that belong together: they are planned and committed
// together. It never waits for a commit.
func (e *Engine) Update(events ...model.Event) {
	if len(events) == 0 {
		return
	}
	e.inbox.postChange(func(b *batch) { b.events = append(b.events, events...) })
}

// Synced says that all sources have passed on everything that existed at the
// start.
func (e *Engine) Synced() { e.inbox.setSynced(nil) }

type periods struct{ minSync, sync time.Duration }

// SetPeriods replaces MinSyncPeriod and SyncPeriod of the Options.
func (e *Engine) SetPeriods(minSync, sync time.Duration) {
	e.syncPeriod.Store(int64(sync))
	e.inbox.post(func(b *batch) { b.periods = &periods{minSync, sync} })
}

// SetPlanConfig replaces the configuration of the planner.
func (e *Engine) SetPlanConfig(config plan.Config) {
	e.inbox.postChange(func(b *batch) { b.config = &config })
}
