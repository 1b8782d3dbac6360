package randomworld

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/oracle"
)

// RandomEvents returns events that belong together. The world is not modified;
// see World.After. The events may change nothing.
func RandomEvents(rng *rand.Rand, world oracle.World, topology Topology) []model.Event {
	d := drawer{rng, topology}
	var events []model.Event
	for range 1 + rng.IntN(3) {
		more := d.step(world)
		world = world.After(more...)
		events = append(events, more...)
	}
	return events
}

func (d drawer) step(w oracle.World) []model.Event {
	switch n := d.IntN(20); {
	case len(w.Services) < 2 || n < 2:
		return d.newService(w)
	case n < 4:
		return d.removeService(w)
	case n < 9:
		return d.changeService(w)
	case n < 16:
		return d.changeSlices(w)
	default:
		return d.changeNode(w)
	}
}

// removeService deletes a Service, with its slices or before them.
func (d drawer) removeService(w oracle.World) []model.Event {
	s := pick(d.Rand, w.Services)
	events := []model.Event{model.DeleteService{Name: s.Name}}
	if d.oneIn(2) {
		for _, slice := range slicesOf(w, s.Name) {
			events = append(events, model.DeleteSlice{Name: slice.Name})
		}
	}
	return events
}

func (d drawer) changeService(w oracle.World) []model.Event {
	old := pick(d.Rand, w.Services)
	s := *old
	fields := 9
	if d.Annotations {
		fields += 2
	}
	switch d.IntN(fields) {
	case 0:
		s.InternalPolicy = d.policy()
	case 1:
		s.ExternalPolicy = d.policy()
	case 2:
		s.Affinity = d.affinity()
	case 3:
		s.Filtered, s.SourceRanges = d.sourceRanges()
		s.FilterAll = d.filterAll()
	case 4:
		s.ExternalIPs = d.externalIPs(w, &s)
	case 5:
		s.LoadBalancerIPs = d.loadBalancerIPs(&s)
		s.RoutedIPs = d.routedIPs(&s)
	case 6:
		s.Ports = d.ports()
		d.portRanges(s.Ports)
	case 7:
		s.Ports = slices.Clone(s.Ports)
		i := d.IntN(len(s.Ports))
		s.Ports[i].NodePort = d.nodePort(slices.Delete(slices.Clone(s.Ports), i, i+1), s.Ports[i].Protocol)
	case 8: // the same name again, as another Service
		if again := d.service(w, s.Name); len(again.ClusterIPs) > 0 {
			return []model.Event{model.DeleteService{Name: s.Name}, model.SetService{Service: again}}
		}
	case 9:
		s.Algorithm = d.algorithm()
		s.AlgorithmChosen = s.Algorithm != model.Random
	case 10:
		s.PassThrough = d.passThrough()
	}
	return []model.Event{model.SetService{Service: &s}}
}

// changeSlices changes one slice of a Service, or replaces them all.
func (d drawer) changeSlices(w oracle.World) []model.Event {
	s := pick(d.Rand, w.Services)
	have := slicesOf(w, s.Name)
	if len(have) == 0 || d.oneIn(6) {
		return d.newSlices(w, s)
	}
	old := pick(d.Rand, have)
	if d.oneIn(8) {
		return []model.Event{model.DeleteSlice{Name: old.Name}}
	}
	slice := *old
	slice.Endpoints = slices.Clone(old.Endpoints)
	fields := 6
	if d.Annotations {
		fields++
	}
	switch n := d.IntN(fields); {
	case n == 6:
		slice.Weight = d.weight()
	case n < 1:
		slice.Ports = d.slicePorts(s, nil)
	case n < 3 || len(slice.Endpoints) == 0:
		d.addEndpoint(&slice, have)
	case n < 4:
		i := d.IntN(len(slice.Endpoints))
		slice.Endpoints = slices.Delete(slice.Endpoints, i, i+1)
	default:
		slice.Endpoints[d.IntN(len(slice.Endpoints))].Conditions = pick(d.Rand, conditions)
	}
	return []model.Event{model.SetSlice{Slice: &slice}}
}

func (d drawer) addEndpoint(slice *model.Slice, have []*model.Slice) {
	p := pick(d.Rand, d.pods(slice.Family))
	there := slices.ContainsFunc(slice.Endpoints, func(e model.Endpoint) bool { return e.Addr == p.Addr })
	if p.Addr.IsValid() && !there {
		slice.Endpoints = append(slice.Endpoints, d.endpoint(p, have, d.hintStyle()))
	}
}

// changeNode changes the Node object, the machine's addresses or the service
// CIDRs.
func (d drawer) changeNode(w oracle.World) []model.Event {
	switch d.IntN(6) {
	case 0:
		return []model.Event{model.SetNode{}}
	case 1, 2:
		return []model.Event{model.SetNode{Node: d.node()}}
	case 3:
		return []model.Event{model.SetHostIPs{IPs: d.fewerHostIPs()}}
	case 4:
		c := pick(d.Rand, w.ServiceCIDRs)
		if c == nil || d.oneIn(2) {
			return []model.Event{model.SetServiceCIDR{ServiceCIDR: d.serviceCIDR(pick(d.Rand, []string{"kubernetes", "more"}))}}
		}
		return []model.Event{model.DeleteServiceCIDR{Name: c.Name}}
	}
	// A CIDR of its own for one address, nested in the others.
	c := &model.ServiceCIDR{Name: "tiny"}
	for _, f := range d.families() {
		if a := pick(d.Rand, firstAddrs(f, d.ServiceCIDR, 40)); a.IsValid() {
			c.Prefixes = append(c.Prefixes, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return []model.Event{model.SetServiceCIDR{ServiceCIDR: c}}
}
