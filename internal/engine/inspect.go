package engine

import (
	"sluice/internal/model"
	"sluice/internal/plan"
)

// View is what is known and what is planned from it, of one moment. It is lent
// out: what is kept of it must be immutable, or copied.
type View struct {
	State   *model.State
	Desired *plan.Desired
	Planner Planner
	// Version is another one whenever State or Desired are.
	Version uint64
}

// Evidence is what the plan of a Service was made from. It may be kept.
func (v View) Evidence(service model.Name) plan.Evidence {
	return v.Planner.Evidence(v.State, service)
}

// Inspector lends out Views. It is Engine, as those see it who only read.
type Inspector interface{ Inspect(read func(View)) }

// Inspect lends out a View for reading, while read runs. Planning waits for it,
// commits under way do not.
func (e *Engine) Inspect(read func(View)) {
	e.planMu.RLock()
	defer e.planMu.RUnlock()
	read(View{e.state, e.planner.Desired(), e.planner, e.version})
}
