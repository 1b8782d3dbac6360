package engine

import (
	"maps"
	"time"

	"sluice/internal/model"
)

// Events summarises the events that led to a commit. It is zero for a commit
// that is only a retry or a repair.
type Events struct {
	Services, Slices int // events about Services, and about EndpointSlices
	Triggers         []Trigger
	// Since is when the oldest event arrived; zero if there was none.
	Since time.Time
	// Touched are the Services that the events concern. Everything says that
	// any Service may have changed.
	Touched    map[model.Name]struct{}
	Everything bool
}

// Trigger is the time of a change in the cluster that led to an EndpointSlice
// update.
type Trigger struct {
	Family model.Family
	At     time.Time
}

// Count counts an event.
func (e *Events) Count(event model.Event) {
	switch event.(type) {
	case model.SetService, model.DeleteService:
		e.Services++
	case model.SetSlice, model.DeleteSlice:
		e.Slices++
	}
}

// take counts an event that is about to be applied to a State, and records its
// trigger. A slice that comes again with the same trigger was not changed by
// it.
func (e *Events) take(event model.Event, state *model.State) {
	e.Count(event)
	set, ok := event.(model.SetSlice)
	if !ok || set.Trigger.IsZero() {
		return
	}
	old := state.Slice(set.Name)
	if old == nil || old.ServiceName() != set.ServiceName() || !old.Trigger.Equal(set.Trigger) {
		e.Triggers = append(e.Triggers, Trigger{set.Family, set.Trigger})
	}
}

// touch adds what is planned because of the events.
func (e *Events) touch(dirty *model.Dirty, everything bool) {
	e.Everything = e.Everything || everything || dirty.All || dirty.Node
	if e.Touched == nil {
		e.Touched = dirty.Services
	} else {
		maps.Copy(e.Touched, dirty.Services)
	}
}
