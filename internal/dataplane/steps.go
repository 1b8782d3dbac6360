package dataplane

import (
	"iter"
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// stepSize is how many endpoints of a route, or source ranges, are changed at a time. It takes the
// kernel a few milliseconds. But a step also takes time in proportion to all that there are, so
// maxSteps is about how many steps replace all of them.
const (
	stepSize = 250
	maxSteps = 32
)

// room returns how large a step between two lists may be.
func room[T any](old, new []T) int { return max(stepSize, 2*max(len(old), len(new))/maxSteps) }

// Steps returns the part of a change that takes a short time to write, and the frontends that are
// left then. A frontend of a service port that differs in very many endpoints or source ranges from what is programmed
// is replaced by one that has some of the old and some of the new ones: it serves at every step, and
// admits whom both admit and nobody whom neither does. One that is removed loses its endpoints first.
func Steps(change *plan.Change, programmed func(plan.Key) *plan.Frontend) (*plan.Change, map[plan.Key]struct{}) {
	steps := map[plan.Key]*plan.Frontend{}
	for _, f := range change.Set {
		if between := step(programmed(f.Key), f); between != nil {
			steps[f.Key] = between
		}
	}
	for _, k := range change.Removed {
		if old := programmed(k); old != nil {
			if between := step(old, emptied(old)); between != nil {
				steps[k] = between
			}
		}
	}
	if len(steps) == 0 {
		return change, nil
	}
	part, left := *change, make(map[plan.Key]struct{}, len(steps))
	part.Set, part.Removed = nil, nil
	for _, f := range change.Set {
		if steps[f.Key] == nil {
			part.Set = append(part.Set, f)
		}
	}
	for _, k := range change.Removed {
		if steps[k] == nil {
			part.Removed = append(part.Removed, k)
		}
	}
	for k, f := range steps {
		part.Set = append(part.Set, f)
		left[k] = struct{}{}
	}
	return &part, left
}

// emptied is a frontend without endpoints and source ranges.
func emptied(f *plan.Frontend) *plan.Frontend {
	empty := *f
	empty.Route.Endpoints, empty.Sources = nil, nil
	if f.Outside != nil {
		outside := *f.Outside
		outside.Endpoints, empty.Outside = nil, &outside
	}
	return &empty
}

// step returns a frontend that differs a little from an old one, nil for none, and is nearer to a new
// one. It returns nil if the new one itself does not differ by more.
func step(old, new *plan.Frontend) *plan.Frontend {
	switch {
	case new.ProxyConnects:
		return nil
	case old == nil:
		old = &plan.Frontend{Filtered: new.Filtered}
	case old.Service != new.Service || old.Port != new.Port:
		return nil // its clients must not meet endpoints of another Service
	}
	between, partial := *new, false
	between.Route.Endpoints = poolBetween(&old.Route, &new.Route, &partial)
	if new.Outside != nil {
		before, outside := old.Outside, *new.Outside
		if before == nil {
			before = &plan.Route{}
		}
		outside.Endpoints = poolBetween(before, new.Outside, &partial)
		between.Outside = &outside
	}
	if old.Filtered && new.Filtered { // else clients that both admit would be dropped meanwhile
		between.Sources = sourcesBetween(old.Sources, new.Sources, &partial)
	}
	if !partial {
		return nil
	}
	return &between
}

// poolBetween is listBetween for the endpoints of a route; if they do not differ by many it returns the
// new ones, and else it sets partial. The lookup table of Maglev does not grow with its pool; and where a
// pool gets weights or loses them, those of some endpoints mean nothing.
func poolBetween(old, new *plan.Route, partial *bool) []plan.Endpoint {
	weighted := func(r *plan.Route) bool { return len(r.Endpoints) > 0 && r.Weighted() }
	if new.Algorithm == model.Maglev ||
		weighted(old) != weighted(new) && len(old.Endpoints) > 0 && len(new.Endpoints) > 0 {
		return new.Endpoints
	}
	gone, come := count(plan.DifferentEndpoints(old.Endpoints, new.Endpoints))
	room := room(old.Endpoints, new.Endpoints)
	if gone+come <= room {
		return new.Endpoints
	}
	*partial = true
	gone = min(gone, max(room/2, room-come)) // half of them if there are as many
	compare := func(a, b plan.Endpoint) int { return a.Compare(b.AddrPort) }
	return listBetween(old.Endpoints, new.Endpoints, compare, gone, room-gone)
}

// sourcesBetween is listBetween for source ranges. One range may cover others, so the new ones come
// before the old ones go.
func sourcesBetween(old, new []netip.Prefix, partial *bool) []netip.Prefix {
	if slices.Equal(old, new) {
		return new
	}
	gone, come := count(plan.Merge(old, new, netip.Prefix.Compare))
	room := room(old, new)
	if gone+come <= room {
		return new
	}
	*partial = true
	come = min(come, room)
	return listBetween(old, new, netip.Prefix.Compare, room-come, come)
}

// count counts what is only in one of two lists.
func count[T any](merged iter.Seq2[*T, *T]) (gone, come int) {
	for before, after := range merged {
		switch {
		case after == nil:
			gone++
		case before == nil:
			come++
		}
	}
	return gone, come
}

// listBetween returns an old sorted list with some of the differences to a new one: so many that go,
// and so many that come.
func listBetween[T any](old, new []T, compare func(a, b T) int, gone, come int) []T {
	between := make([]T, 0, len(old)+come)
	for before, after := range plan.Merge(old, new, compare) {
		switch {
		case after == nil && gone > 0:
			gone--
		case after == nil:
			between = append(between, *before)
		case before != nil:
			between = append(between, *after)
		case come > 0:
			come--
			between = append(between, *after)
		}
	}
	return between
}
