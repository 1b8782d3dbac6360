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

// add counts one endpoint. Its conditions are those of all slices that have it.
func (c *EndpointCounts) add(used bool, conditions model.Conditions) {
	if used {
		c.Used++
	} else {
		c.LeftOut++
	}
	if conditions.Has(model.Ready) {
		c.Ready++
	}
	if conditions.Has(model.Terminating) {
		c.Terminating++
	}
}

// EndpointCounts counts the endpoints of the Service, in the families that it has
// and the node supports.
func (e *Evidence) EndpointCounts() (c EndpointCounts) {
	if e.Service == nil {
		return c
	}
	used := map[netip.Addr]struct{}{}
	for _, f := range e.frontends {
		for _, route := range f.Routes() {
			for _, ep := range route.Endpoints {
				used[ep.Addr()] = struct{}{}
			}
		}
	}
	var all []*model.Endpoint
	for _, s := range e.Slices {
		for i := range s.Endpoints {
			if e.plan.of(s.Family) {
				all = append(all, &s.Endpoints[i])
			}
		}
	}
	slices.SortFunc(all, func(a, b *model.Endpoint) int { return a.Addr.Compare(b.Addr) })
	for len(all) > 0 {
		addr, conditions := all[0].Addr, all[0].Conditions
		for all = all[1:]; len(all) > 0 && all[0].Addr == addr; all = all[1:] {
			conditions |= all[0].Conditions
		}
		_, isUsed := used[addr]
		c.add(isUsed, conditions)
	}
	return c
}
