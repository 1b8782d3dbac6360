package engine

import (
	"sluice/internal/model"
	"sluice/internal/plan"
)

// View is a consistent snapshot of what is known and what is planned. It is
// only valid during the call: copy what must be kept, unless it is immutable.
type View struct {
	State   *model.State
	Desired *plan.Desired
	Planner Planner
	// Version changes whenever State or Desired do.
	Version uint64
}

// Evidence returns the inputs to the plan of a Service. It may be kept.
func (v View) Evidence(service model.Name) plan.Evidence {
	return v.Planner.Evidence(v.State, service)
}

// Inspector is Engine for readers.
type Inspector interface{ Inspect(read func(View)) }

// Inspect calls read with a View. Planning waits for it, commits in progress do
// not.
func (e *Engine) Inspect(read func(View)) {
	e.planMu.RLock()
	defer e.planMu.RUnlock()
	read(View{e.state, e.planner.Desired(), e.planner, e.version})
}
