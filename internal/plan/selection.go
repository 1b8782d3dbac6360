package plan

import (
	"slices"

	"sluice/internal/model"
)

// selection decides which candidates get into the pools, and why the others do
// not.
type selection struct {
	*candidates
	// usable says that some candidate is usable, localUsable that one on this
	// node is. Otherwise candidates that are serving and terminating are used.
	usable, localUsable bool
	// meant reports whether hints apply to this node; nil if hints are ignored.
	meant  func(*model.Hints) bool
	origin Origin // of the cluster pool
	// clusterStays and localStays say that endpoints that do not answer stay in that pool.
	clusterStays, localStays bool
}

// selection examines all candidates; local ones only if withLocal is set.
func (cs *candidates) selection(env *environment, withLocal bool) selection {
	s := selection{candidates: cs, origin: FromTerminating}
	s.usable = cs.any(func(c *candidate) bool { return c.usable })
	s.localUsable = withLocal && cs.any(func(c *candidate) bool { return c.usable && c.local })
	switch {
	case s.usable:
		s.meant, s.origin = cs.topology(env)
	case !cs.any(func(c *candidate) bool { return c.fallback }):
		s.origin = FromNothing
	}
	s.clusterStays = cs.tooManyFail(s.cluster)
	s.localStays = withLocal && cs.tooManyFail(s.local)
	return s
}

func (cs *candidates) any(is func(*candidate) bool) bool {
	for i := range cs.found {
		if is(&cs.found[i]) {
			return true
		}
	}
	return false
}

// cluster returns why a candidate is not in the cluster pool. Topology applies
// to this pool only.
func (s *selection) cluster(c *candidate) Reason {
	switch {
	case s.drained(c):
		return Drained
	case !c.usable && !c.fallback:
		return NotReady
	case s.usable && !c.usable:
		return Terminating
	case s.meant != nil && !s.meant(s.of(c).Hints):
		return HintedElsewhere
	case c.ejected && !s.clusterStays:
		return Ejected
	}
	return InPool
}

// local returns why a candidate is not in the local pool.
func (s *selection) local(c *candidate) Reason {
	switch {
	case s.drained(c):
		return Drained
	case !c.usable && !c.fallback:
		return NotReady
	case !c.local:
		return NotHere
	case s.localUsable && !c.usable:
		return Terminating
	case c.ejected && !s.localStays:
		return Ejected
	}
	return InPool
}

// topology returns a function that reports whether hints apply to this node,
// nil if hints are ignored. Hints for nodes take precedence over hints for
// zones, and either is used only if every usable endpoint has some and one of
// them applies to this node.
func (cs *candidates) topology(env *environment) (func(*model.Hints) bool, Origin) {
	node := func(h *model.Hints) bool { return slices.Contains(h.Nodes, env.nodeName) }
	zone := func(h *model.Hints) bool { return slices.Contains(h.Zones, env.zone) }

	everyNode, everyZone := env.nodeName != "", env.zone != ""
	anyNode, anyZone := false, false
	for i := range cs.found {
		if !cs.found[i].usable {
			continue
		}
		h := cs.of(&cs.found[i]).Hints
		if h == nil {
			return nil, FromReady
		}
		everyNode = everyNode && len(h.Nodes) > 0
		everyZone = everyZone && len(h.Zones) > 0
		anyNode = anyNode || everyNode && node(h)
		anyZone = anyZone || everyZone && zone(h)
	}
	switch {
	case everyNode && anyNode:
		return node, FromNodeHints
	case everyZone && anyZone:
		return zone, FromZoneHints
	}
	return nil, FromReady
}
