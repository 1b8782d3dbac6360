//go:build linux

package iptables

import (
	"iter"
	"maps"
	"slices"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// familyState is one family: its chains as they should be, and as they are.
type familyState struct {
	*ruleset
	tables []*table // in the order of iptables.TableNames
}

func newFamilyState(family model.Family, features iptables.Features) *familyState {
	s := &familyState{ruleset: newRuleset(family, features)}
	for _, name := range iptables.TableNames {
		s.tables = append(s.tables, newTable(iptables.Table{Family: family, Name: name}))
	}
	return s
}

func ofFamily(family model.Family, frontends []*plan.Frontend) iter.Seq[*plan.Frontend] {
	return dataplane.OfFamily(family, (*plan.Frontend).Family, slices.Values(frontends))
}

func (s *familyState) affected(set []*plan.Frontend, change *plan.Change) int {
	n := dataplane.Count(ofFamily(s.family, set)) +
		dataplane.Count(dataplane.OfFamily(s.family, plan.Key.Family, slices.Values(change.Removed)))
	if change.Settings != nil && s.concernsAll(*change.Settings) {
		n = max(n, len(s.frontends))
	}
	return n
}

// item is the change of a service port.
type item struct {
	id        portID
	frontends []*plan.Frontend // all that it should have
	old       *group
}

// items turns new, changed and removed frontends into changes of service ports.
func (s *familyState) items(set []*plan.Frontend, removed []plan.Key) []*item {
	byID := map[portID]map[plan.Key]*plan.Frontend{}
	of := func(id portID) map[plan.Key]*plan.Frontend {
		if byID[id] == nil {
			byID[id] = map[plan.Key]*plan.Frontend{}
			if g := s.groups[id]; g != nil {
				for _, f := range g.frontends {
					byID[id][f.Key] = f
				}
			}
		}
		return byID[id]
	}
	for _, k := range removed {
		if old := s.frontends[k]; old != nil {
			delete(of(idOf(old)), k)
		}
	}
	for f := range ofFamily(s.family, set) {
		if old := s.frontends[f.Key]; old != nil && idOf(old) != idOf(f) {
			delete(of(idOf(old)), f.Key)
		}
		of(idOf(f))[f.Key] = f
	}
	items := make([]*item, 0, len(byID))
	for id, frontends := range byID {
		items = append(items, &item{id: id, frontends: slices.Collect(maps.Values(frontends)), old: s.groups[id]})
	}
	// Sorted, so that it does not depend on chance what is programmed if some fail.
	slices.SortFunc(items, func(a, b *item) int { return a.id.compare(b.id) })
	return items
}

// fill lays out all that is desired in an empty ruleset.
func (s *familyState) fill(desired *plan.Desired, frontends []*plan.Frontend) []*item {
	s.configure(desired.Settings)
	for _, h := range desired.HealthChecks {
		s.setHealthPort(h.Port, true)
	}
	items := s.items(frontends, nil)
	for _, it := range items {
		s.put(it)
	}
	s.layout()
	return items
}

// put makes the change in the ruleset.
func (s *familyState) put(it *item) {
	var g *group
	if len(it.frontends) > 0 {
		g = newGroup(it.id, it.frontends, s.env)
	}
	s.replace(it.id, g)
}

// undo reverts the change.
func (s *familyState) undo(it *item) { s.replace(it.id, it.old) }
