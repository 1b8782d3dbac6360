package model

import (
	"maps"
	"time"
)

// News is how many events came, and what set them off. It decides nothing; it
// is for those who measure how fast the kernel follows.
type News struct {
	Services, Slices int // events about Services, and about EndpointSlices
	Triggers         []Trigger
	// Since is when the oldest of the events came; zero if none did.
	Since time.Time
	// Touched are the Services that they are about, and Everything says that any
	// Service may look different now.
	Touched    map[Name]struct{}
	Everything bool
}

// Trigger is when something happened that changed an EndpointSlice.
type Trigger struct {
	Family Family
	At     time.Time
}

// Add takes in later news.
func (n *News) Add(later News) {
	n.Services += later.Services
	n.Slices += later.Slices
	n.Triggers = append(n.Triggers, later.Triggers...)
	if n.Since.IsZero() {
		n.Since = later.Since
	}
	n.Everything = n.Everything || later.Everything
	if len(later.Touched) > 0 {
		touched := make(map[Name]struct{}, len(n.Touched)+len(later.Touched)) // others may read the old one
		maps.Copy(touched, n.Touched)
		maps.Copy(touched, later.Touched)
		n.Touched = touched
	}
}

// Count takes note of an event.
func (n *News) Count(e Event) {
	switch e.(type) {
	case SetService, DeleteService:
		n.Services++
	case SetSlice, DeleteSlice:
		n.Slices++
	}
}

// trigger takes note of what changed a slice. A slice that comes again, with
// the trigger it had, was not changed by it.
func (n *News) trigger(old, now *Slice) {
	if now.Trigger.IsZero() || old != nil && old.Trigger.Equal(now.Trigger) {
		return
	}
	n.Triggers = append(n.Triggers, Trigger{now.Family, now.Trigger})
}
