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

// InUse counts the endpoints that get new connections through the frontends of a Service, and those
// of them on this node: in the family that has more of them, since an endpoint of a dual-stack
// Service has an address of each.
func InUse(frontends []*Frontend) (all, local int) {
	var every, here [2]int
	for addr, isLocal := range inUse(frontends) {
		family := 0
		if addr.Is6() {
			family = 1
		}
		every[family]++
		if isLocal {
			here[family]++
		}
	}
	return max(every[0], every[1]), max(here[0], here[1])
}

// inUse returns the addresses of these endpoints, and whether they are on this node.
func inUse(frontends []*Frontend) map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	for _, f := range frontends {
		for _, route := range f.Routes() {
			for _, e := range route.Endpoints {
				used[e.Addr()] = e.Local
			}
		}
	}
	return used
}

// EndpointCounts counts the endpoints of the Service, in the families that it has
// and the node supports.
func (e *Evidence) EndpointCounts() (c EndpointCounts) {
	if e.Service == nil {
		return c
	}
	used := inUse(e.frontends)
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
