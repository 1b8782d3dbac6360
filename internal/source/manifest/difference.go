package manifest

import (
	"cmp"
	"reflect"
	"slices"

	"sluice/internal/model"
)

// key tells model values apart.
type key struct {
	kind valueKind
	name model.Name
}

type valueKind uint8

const (
	nodeValue valueKind = iota
	cidrValue
	serviceValue
	sliceValue
)

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.kind, o.kind), k.name.Compare(o.name))
}

// keyOf is the key of the value that an event sets.
func keyOf(e model.Event) key {
	switch e := e.(type) {
	case model.SetService:
		return key{serviceValue, e.Name}
	case model.SetSlice:
		return key{sliceValue, e.Name}
	case model.SetServiceCIDR:
		return key{cidrValue, model.Name{Name: e.Name}}
	}
	return key{kind: nodeValue}
}

// remove is the event that takes the value back.
func (k key) remove() model.Event {
	switch k.kind {
	case serviceValue:
		return model.DeleteService{Name: k.name}
	case sliceValue:
		return model.DeleteSlice{Name: k.name}
	case cidrValue:
		return model.DeleteServiceCIDR{Name: k.name.Name}
	}
	return model.SetNode{}
}

// same tells whether two events say the same.
func same(a, b model.Event) bool {
	return a == b || reflect.DeepEqual(a, b)
}

// difference returns the events that lead from old to next, in a fixed order.
func difference(old, next map[key]model.Event) []model.Event {
	var changed []key
	for k, e := range next {
		if before, ok := old[k]; !ok || before != e {
			changed = append(changed, k)
		}
	}
	for k := range old {
		if _, ok := next[k]; !ok {
			changed = append(changed, k)
		}
	}
	slices.SortFunc(changed, key.compare)
	events := make([]model.Event, len(changed))
	for i, k := range changed {
		e, ok := next[k]
		if !ok {
			e = k.remove()
		}
		events[i] = e
	}
	return events
}
