package oracle

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// endpoint is an endpoint of one service port.
type endpoint struct {
	model.Endpoint
	addrPort netip.AddrPort
	weight   uint16
}

func (e endpoint) usable() bool  { return e.Conditions.Has(model.Ready) }
func (e endpoint) active() bool  { return e.weight > 0 }
func (e endpoint) leaving() bool { return e.Conditions.Has(model.Serving | model.Terminating) }

// endpointsOf returns the endpoints of a service port in one family that could
// take a connection now, sorted and without duplicates.
//
// The slice must be of that Service and family, and have a port of the same
// name and protocol. Of duplicates the one with the better conditions counts:
// ready before serving and terminating. In case of a tie, the greatest weight
// counts, and then the slice that is first by name.
//
// Endpoints of weight 0 do not count, unless it is 0 for all of the best ones.
func (w World) endpointsOf(s *model.Service, port model.ServicePort, f model.Family) []endpoint {
	all := w.weighedEndpointsOf(s, port, f)
	best := only(all, endpoint.usable)
	if len(best) == 0 {
		best = all
	}
	if len(only(best, endpoint.active)) == 0 {
		return all
	}
	return only(all, endpoint.active)
}

// weighedEndpointsOf returns the endpoints whatever their weights are.
func (w World) weighedEndpointsOf(s *model.Service, port model.ServicePort, f model.Family) []endpoint {
	var found []endpoint
	for _, slice := range slices.SortedFunc(slices.Values(w.Slices), bySliceName) {
		if slice.ServiceName() != s.Name || slice.Family != f {
			continue
		}
		for _, slicePort := range slice.Ports {
			if slicePort.Name != port.Name || slicePort.Protocol != port.Protocol {
				continue
			}
			for _, e := range slice.Endpoints {
				if acceptable(e.Addr, f) {
					weight := uint16(model.DefaultWeight)
					if slice.Weight != nil {
						weight = *slice.Weight
					}
					found = append(found, endpoint{e, netip.AddrPortFrom(e.Addr, slicePort.Port), weight})
				}
			}
		}
	}

	slices.SortStableFunc(found, func(a, b endpoint) int {
		if c := a.addrPort.Compare(b.addrPort); c != 0 {
			return c
		}
		if c := badness(a) - badness(b); c != 0 {
			return c
		}
		return int(b.weight) - int(a.weight)
	})
	found = slices.CompactFunc(found, func(a, b endpoint) bool { return a.addrPort == b.addrPort })
	return slices.DeleteFunc(found, func(e endpoint) bool { return !e.usable() && !e.leaving() })
}

func bySliceName(a, b *model.Slice) int { return a.Name.Compare(b.Name) }

func badness(e endpoint) int {
	switch {
	case e.usable():
		return 0
	case e.leaving():
		return 1
	}
	return 2
}

// acceptable excludes addresses that no endpoint can have: of the other family,
// loopback, unspecified, link-local or multicast.
func acceptable(a netip.Addr, f model.Family) bool {
	return a.IsValid() && model.FamilyOf(a) == f &&
		!a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() && !a.IsMulticast()
}

// clusterPool returns the usable endpoints after topology; if none is usable,
// those that still serve while they terminate.
func (w World) clusterPool(all []endpoint) []endpoint {
	if usable := only(all, endpoint.usable); len(usable) > 0 {
		return w.nearest(usable)
	}
	return only(all, endpoint.leaving)
}

// localPool does the same for the endpoints on this node, and ignores hints.
func (w World) localPool(all []endpoint) []endpoint {
	here := only(all, func(e endpoint) bool {
		return e.Node != "" && e.Node == w.Config.NodeName
	})
	if usable := only(here, endpoint.usable); len(usable) > 0 {
		return usable
	}
	return only(here, endpoint.leaving)
}

// nearest keeps the endpoints that are hinted for this node, if every endpoint
// has hints for nodes and one names this one. Otherwise it does the same with
// this node's zone. Otherwise it keeps them all.
func (w World) nearest(usable []endpoint) []endpoint {
	byNode := func(h model.Hints) []string { return h.Nodes }
	if kept := hintedAt(usable, byNode, w.Config.NodeName); len(kept) > 0 {
		return kept
	}
	byZone := func(h model.Hints) []string { return h.Zones }
	if w.Node != nil {
		if kept := hintedAt(usable, byZone, w.Node.Zone); len(kept) > 0 {
			return kept
		}
	}
	return usable
}

// hintedAt returns the endpoints whose hints of one sort contain a node or
// zone, and nothing if that is unknown or an endpoint has no hint of that sort.
func hintedAt(usable []endpoint, sort func(model.Hints) []string, name string) []endpoint {
	hints := func(e endpoint) []string {
		if e.Hints == nil {
			return nil
		}
		return sort(*e.Hints)
	}
	unhinted := func(e endpoint) bool { return len(hints(e)) == 0 }
	if name == "" || slices.ContainsFunc(usable, unhinted) {
		return nil
	}
	return only(usable, func(e endpoint) bool { return slices.Contains(hints(e), name) })
}

func only(list []endpoint, wanted func(endpoint) bool) []endpoint {
	return without(list, func(e endpoint) bool { return !wanted(e) })
}

// KeepsFlows reports whether an endpoint that once got the packet keeps its
// flow: a slice of the Service says that it serves, or new flows of any client
// may go to it, or it is ready and only its weight of 0 prevents that.
func KeepsFlows(w World, p Packet, at netip.AddrPort) bool {
	f, ok := w.frontendOf(p)
	if !ok {
		return false
	}
	family := model.FamilyOf(p.Destination)
	for _, slice := range w.Slices {
		if slice.ServiceName() == f.service.Name && slice.Family == family && saysServing(slice, f.port, at) {
			return true
		}
	}
	everywhere := w.endpointsOf(f.service, f.port, family)
	same := func(e endpoint) bool { return e.addrPort == at }
	drained := only(w.weighedEndpointsOf(f.service, f.port, family), func(e endpoint) bool { return same(e) && e.usable() })
	if len(drained) > 0 && !slices.ContainsFunc(everywhere, same) {
		return true
	}
	for _, who := range []client{outside, pod} {
		pool := w.clusterPool(everywhere)
		if f.usesLocalPool(who) {
			pool = w.localPool(everywhere)
		}
		if slices.ContainsFunc(pool, same) {
			return true
		}
	}
	return false
}

// saysServing reports whether a slice has a serving endpoint for a service
// port.
func saysServing(s *model.Slice, port model.ServicePort, at netip.AddrPort) bool {
	has := slices.ContainsFunc(s.Ports, func(p model.SlicePort) bool {
		return p.Name == port.Name && p.Protocol == port.Protocol && p.Port == at.Port()
	})
	return has && acceptable(at.Addr(), s.Family) && slices.ContainsFunc(s.Endpoints, func(e model.Endpoint) bool {
		return e.Addr == at.Addr() && e.Conditions.Has(model.Serving)
	})
}
