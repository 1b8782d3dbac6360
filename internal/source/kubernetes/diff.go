package kubernetes

import (
	"reflect"
	"slices"

	"sluice/internal/model"
)

// diff compares what an object led to before with what it leads to now.
// It returns the events to remember, which are the old ones where nothing
// changed so that only one copy of a value stays, and those to hand over.
func diff(old, next []model.Event) (events, changes []model.Event) {
	events = slices.Clone(next)
	kept := make([]model.Event, 0, len(next)) // the events that take these back
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

// same tells whether two events say the same. Most updates of a Node and many
// of other objects touch nothing that matters here. When a slice was triggered
// matters only if it brings something new.
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
	case model.SetSlice:
		return model.DeleteSlice{Name: e.Name}
	case model.SetServiceCIDR:
		return model.DeleteServiceCIDR{Name: e.Name}
	}
	return model.SetNode{}
}
