package enginetest

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// Engine is an engine that runs on a Dataplane until the test ends.
type Engine struct {
	*engine.Engine
	Dataplane *Dataplane
	Source    model.Sink
	t         testing.TB
}

// New returns an engine that waits for its source. It does not run yet.
func New(t testing.TB, config plan.Config, observers ...engine.Observer) *Engine {
	return NewAt(t, nil, config, observers...)
}

// NewAt returns an engine with a clock, the real one if it is nil.
func NewAt(t testing.TB, c clock.Clock, config plan.Config, observers ...engine.Observer) *Engine {
	d := &Dataplane{is: Behaviour{Refuse: map[netip.Addr]error{}, Connections: map[plan.Key]int64{}}}
	e := &Engine{Dataplane: d, t: t}
	e.Engine = engine.New(engine.Options{Planner: plan.New(config), Dataplane: d, Logger: logr.Discard(), Clock: c, System: config.Limits.System})
	e.Observe(observers...)
	e.Source = e.AddSource("test")
	return e
}

// Start runs the engine.
func (e *Engine) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	e.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			e.t.Errorf("the engine ended with %v", err)
		}
	})
}

// Sync hands over the objects at the start and waits until they are programmed.
func (e *Engine) Sync(events ...model.Event) {
	e.t.Helper()
	e.Source.Update(events...)
	e.Source.Synced()
	e.Settle()
}

// Change hands over events and waits until they are programmed.
func (e *Engine) Change(events ...model.Event) {
	e.t.Helper()
	e.Source.Update(events...)
	e.Settle()
}

// Settle waits until everything is programmed.
func (e *Engine) Settle() {
	e.t.Helper()
	e.await(func(s engine.Summary) bool { return s.Commits > 0 && s.PendingSince.IsZero() })
}

// Attempt hands over the objects at the start and waits for the first commit, whether
// or not it succeeds.
func (e *Engine) Attempt(events ...model.Event) {
	e.t.Helper()
	e.Source.Update(events...)
	e.Source.Synced()
	e.await(func(s engine.Summary) bool { return s.Commits+s.FailedCommits > 0 })
}

func (e *Engine) await(reached func(engine.Summary) bool) {
	e.t.Helper()
	testkit.Eventually(e.t, func() error {
		if s := e.Status(); !reached(s) {
			return fmt.Errorf("the status is %+v", s)
		}
		return nil
	})
}
