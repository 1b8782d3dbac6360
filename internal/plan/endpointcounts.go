package plan

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// EndpointCounts counts the endpoints of a Service by address: one that serves
// several ports counts once, and a pod of a dual-stack Service once in each
// family.
type EndpointCounts struct {
	Used        int // may get connections from or through this node
	LeftOut     int // the others
	Ready       int // used or not
	Terminating int // used or not
}

// Plus returns the sum of both.
func (c EndpointCounts) Plus(o EndpointCounts) EndpointCounts {
	return EndpointCounts{c.Used + o.Used, c.LeftOut + o.LeftOut, c.Ready + o.Ready, c.Terminating + o.Terminating}
}

// countedEndpoint is an endpoint of a slice.
type countedEndpoint struct {
	addr                     netip.Addr
	used, ready, terminating bool
}

// EndpointCounts counts the endpoints of the Service.
func (e *Evidence) EndpointCounts() (c EndpointCounts) {
	if e.Service == nil {
		return c
	}
	all := e.countedEndpoints()
	slices.SortFunc(all, func(a, b countedEndpoint) int { return a.addr.Compare(b.addr) })
	for len(all) > 0 {
		one := all[0]
		for all = all[1:]; len(all) > 0 && all[0].addr == one.addr; all = all[1:] {
			one.used = one.used || all[0].used
			one.ready = one.ready || all[0].ready
			one.terminating = one.terminating || all[0].terminating
		}
		c = c.Plus(one.counts())
	}
	return c
}

func (e countedEndpoint) counts() EndpointCounts {
	count := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	return EndpointCounts{count(e.used), count(!e.used), count(e.ready), count(e.terminating)}
}

// countedEndpoints returns the endpoints in all slices of families that the
// Service has and the node supports.
func (e *Evidence) countedEndpoints() []countedEndpoint {
	used := map[netip.Addr]struct{}{}
	for _, f := range e.frontends {
		for _, route := range f.Routes() {
			for _, ep := range route.Endpoints {
				used[ep.Addr()] = struct{}{}
			}
		}
	}
	var out []countedEndpoint
	for _, s := range e.Slices {
		if !e.plan.of(s.Family) {
			continue
		}
		for i := range s.Endpoints {
			ep := &s.Endpoints[i]
			_, isUsed := used[ep.Addr]
			out = append(out, countedEndpoint{ep.Addr, isUsed, usable(ep), ep.Conditions.Has(model.Terminating)})
		}
	}
	return out
}
