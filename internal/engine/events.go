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

// merge adds others.
func (e *Events) merge(o *Events) {
	e.Services += o.Services
	e.Slices += o.Slices
	e.Triggers = append(e.Triggers, o.Triggers...)
	if e.Since.IsZero() || !o.Since.IsZero() && o.Since.Before(e.Since) {
		e.Since = o.Since
	}
	e.Everything = e.Everything || o.Everything
	if e.Touched == nil {
		e.Touched = o.Touched
	} else {
		maps.Copy(e.Touched, o.Touched)
	}
}

// eventLog holds the events that led to what is planned and not yet in the kernel, by
// Service, because not all Services get there at the same time.
type eventLog struct {
	// since is when the events that are being taken arrived.
	since time.Time
	// of are those of one Service each; others are those of none, and all before the
	// sources were in sync.
	of     map[model.Name]*Events
	others Events
	// recent are the Services of events that are not planned yet.
	recent []model.Name
}

// take counts an event that is about to be applied to a State, and records its
// trigger. A slice that comes again with the same trigger was not changed by
// it.
func (l *eventLog) take(event model.Event, state *model.State, synced bool) {
	e := &l.others
	if name := serviceOf(event, state); synced && name != (model.Name{}) {
		if e = l.of[name]; e == nil {
			e = &Events{Since: l.since}
			if l.of == nil {
				l.of = map[model.Name]*Events{}
			}
			l.of[name] = e
		}
		l.recent = append(l.recent, name)
	}
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

// serviceOf returns the Service that an event is about, none if it is about the node.
func serviceOf(event model.Event, state *model.State) model.Name {
	switch event := event.(type) {
	case model.SetService:
		return event.Name
	case model.DeleteService:
		return event.Name
	case model.SetSlice:
		return event.ServiceName()
	case model.DeleteSlice:
		if old := state.Slice(event.Name); old != nil {
			return old.ServiceName()
		}
	}
	return model.Name{}
}

// touch adds what is planned because of the events.
func (l *eventLog) touch(dirty *model.Dirty, everything bool) {
	o := &l.others
	o.merge(&Events{Everything: everything || dirty.All || dirty.Node, Touched: dirty.Services})
	if o.Since.IsZero() && (o.Everything || o.Services+o.Slices > 0) {
		o.Since = l.since
	}
}

// planned says that the events are planned: those of Services that need not wait for anything but the
// next commit are taken with it.
func (l *eventLog) planned(b *backlog) {
	for _, name := range l.recent {
		l.move(name, b, &l.others)
	}
	l.recent = nil
}

// move moves the events of a Service if nothing of it is in the backlog.
func (l *eventLog) move(name model.Name, b *backlog, to *Events) {
	if e := l.of[name]; e != nil && !b.has(name) {
		to.merge(e)
		delete(l.of, name)
	}
}

// taken removes and returns the events that led to nothing that is in the backlog by now.
func (l *eventLog) taken(b *backlog) (done Events) {
	done, l.others = l.others, Events{}
	for _, name := range b.finished {
		l.move(name, b, &done)
	}
	b.finished = nil
	return done
}
