package source

import (
	"reflect"
	"slices"

	"sluice/internal/model"
)

// Diff compares the events of an object with those it led to before. It returns
// the events to keep, which are the old ones where nothing changed so that only
// one copy of a value stays in memory, and those to pass on.
func Diff(old, next []model.Event) (events, changes []model.Event) {
	if len(old) == 0 {
		return next, next
	}
	events = slices.Clone(next)
	kept := make([]model.Event, 0, len(next)) // the events that revert these
	for i, e := range next {
		kept = append(kept, retraction(e))
		at := slices.IndexFunc(old, func(o model.Event) bool { return same(o, e) })
		if at >= 0 {
			events[i] = old[at]
			continue
		}
		changes = append(changes, e)
	}
	for _, e := range old {
		if gone := retraction(e); !slices.Contains(kept, gone) {
			changes = append(changes, gone)
		}
	}
	return events, changes
}

// same reports whether two events are equal, apart from the trigger of a slice,
// which matters only if something else changed. Most updates of a Node and many
// of other objects change nothing that matters here.
func same(a, b model.Event) bool {
	if a == b {
		return true
	}
	if x, ok := a.(model.SetSlice); ok {
		if y, ok := b.(model.SetSlice); ok {
			slice := *y.Slice
			slice.Trigger = x.Trigger
			b = model.SetSlice{Slice: &slice}
		}
	}
	return reflect.DeepEqual(a, b)
}

// retraction is the event that takes back what another one set.
func retraction(e model.Event) model.Event {
	switch e := e.(type) {
	case model.SetService:
		return model.DeleteService{Name: e.Name}
	case model.ReleaseService:
		return model.DeleteService(e)
	case model.SetSlice:
		return model.DeleteSlice{Name: e.Name}
	case model.SetPeer:
		return model.DeletePeer{Name: e.Name}
	case model.SetServiceCIDR:
		return model.DeleteServiceCIDR{Name: e.Name}
	}
	return model.SetNode{}
}

// NameIn returns the name of the object that an event sets, with memory that its value keeps; none if
// it is not one with a namespace.
func NameIn(e model.Event) model.Name {
	switch e := e.(type) {
	case model.SetService:
		return e.Name
	case model.SetSlice:
		return e.Name
	case model.ReleaseService:
		return e.Name
	}
	return model.Name{}
}
