package plan

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// EndpointCounts counts the endpoints of a Service by their addresses: one that serves
// several ports counts once, and a pod of a dual-stack Service in each family.
type EndpointCounts struct {
	Used        int // connections from or through this node may go there
	LeftOut     int // the others
	Ready       int // those that are ready, used or not
	Terminating int // those that are terminating, used or not
}

// Plus adds up.
func (c EndpointCounts) Plus(o EndpointCounts) EndpointCounts {
	return EndpointCounts{c.Used + o.Used, c.LeftOut + o.LeftOut, c.Ready + o.Ready, c.Terminating + o.Terminating}
}

// countedEndpoint is an endpoint of a slice, as a census sees it.
type countedEndpoint struct {
	addr                     netip.Addr
	used, ready, terminating bool
}

// EndpointCounts counts the endpoints of the Service.
func (e *Evidence) EndpointCounts() (c EndpointCounts) {
	if e.Service == nil {
		return c
	}
	people := e.counted()
	slices.SortFunc(people, func(a, b countedEndpoint) int { return a.addr.Compare(b.addr) })
	for len(people) > 0 {
		one := people[0]
		for people = people[1:]; len(people) > 0 && people[0].addr == one.addr; people = people[1:] {
			one.used = one.used || people[0].used
			one.ready = one.ready || people[0].ready
			one.terminating = one.terminating || people[0].terminating
		}
		c = c.Plus(one.counts())
	}
	return c
}

func (p countedEndpoint) counts() EndpointCounts {
	count := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	return EndpointCounts{count(p.used), count(!p.used), count(p.ready), count(p.terminating)}
}

// counted are all endpoints of the families that the Service has and the node can
// do.
func (e *Evidence) counted() []countedEndpoint {
	used := map[netip.Addr]struct{}{}
	for _, f := range e.frontends {
		for _, pool := range f.Routes() {
			for _, ep := range pool.Endpoints {
				used[ep.Addr()] = struct{}{}
			}
		}
	}
	var people []countedEndpoint
	for _, s := range e.Slices {
		for i := range s.Endpoints {
			at := &s.Endpoints[i]
			if _, in := used[at.Addr]; e.plan.of(s.Family) {
				people = append(people, countedEndpoint{at.Addr, in, usable(at), at.Conditions.Has(model.Terminating)})
			}
		}
	}
	return people
}
