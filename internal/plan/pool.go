package plan

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// pools are the endpoints of one service port in one family.
type pools struct {
	cluster Route
	// local is nil unless it was asked for.
	local *Route
	// localUsable says that the endpoints of local are usable ones, not the
	// terminating ones that stand in for them.
	localUsable bool
}

// candidate points at an endpoint that may get into a pool: it is usable, or
// serving and terminating. It holds what is sorted by and no pointer, which
// makes sorting the endpoints of a large Service cheaper.
type candidate struct {
	high, low uint64 // of the address
	port      uint16
	usable    bool
	local     bool
	slice     int32
	endpoint  int32
}

// candidates are those of one service port and family, sorted by address and
// port and each once. It is used again and again, for the sake of its memory.
type candidates struct {
	slices []*model.Slice
	found  []candidate
}

// gather finds the candidates in the slices of a Service.
func (cs *candidates) gather(env *environment, all []*model.Slice, port *model.ServicePort, f model.Family) {
	cs.slices, cs.found = all, cs.found[:0]
	for i, s := range all {
		if s.Family != f {
			continue
		}
		for _, p := range s.Ports {
			if p.Name == port.Name && p.Protocol == port.Protocol && p.Port != 0 {
				cs.add(env, i, p.Port)
			}
		}
	}
	slices.SortFunc(cs.found, candidate.compare)
	cs.found = slices.CompactFunc(cs.found, candidate.twin)
}

func (cs *candidates) add(env *environment, slice int, port uint16) {
	s := cs.slices[slice]
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		usable := e.Conditions.Has(model.Ready)
		if !usable && !e.Conditions.Has(model.Serving|model.Terminating) {
			continue
		}
		if endpointFault(e.Addr, s.Family) != "" {
			continue
		}
		ip := e.Addr.As16()
		cs.found = append(cs.found, candidate{
			high:     binary.BigEndian.Uint64(ip[:8]),
			low:      binary.BigEndian.Uint64(ip[8:]),
			port:     port,
			usable:   usable,
			local:    env.local(e),
			slice:    int32(slice),
			endpoint: int32(i),
		})
	}
}

// twin tells whether two candidates are the same endpoint, found twice.
func (c candidate) twin(o candidate) bool {
	return c.low == o.low && c.high == o.high && c.port == o.port
}

// compare puts the usable one of twins first, and else the one found first.
func (c candidate) compare(o candidate) int {
	switch {
	case c.high != o.high:
		return cmp.Compare(c.high, o.high)
	case c.low != o.low:
		return cmp.Compare(c.low, o.low)
	case c.port != o.port:
		return cmp.Compare(c.port, o.port)
	case c.usable != o.usable && c.usable:
		return -1
	case c.usable != o.usable:
		return 1
	case c.slice != o.slice:
		return cmp.Compare(c.slice, o.slice)
	}
	return cmp.Compare(c.endpoint, o.endpoint)
}

// of returns the endpoint that a candidate points at.
func (cs *candidates) of(c *candidate) *model.Endpoint {
	return &cs.slices[c.slice].Endpoints[c.endpoint]
}

// pools selects the endpoints of the cluster pool and, if wanted, of the local
// pool. Topology is for the cluster pool only.
func (cs *candidates) pools(env *environment, withLocal bool) pools {
	var out pools
	meant := cs.topology(env)
	out.cluster.Endpoints = cs.pool(func(c *candidate) bool { return c.usable && (meant == nil || meant(cs.of(c).Hints)) })
	if out.cluster.Endpoints == nil {
		out.cluster.Endpoints = cs.pool(func(c *candidate) bool { return true })
	}
	if !withLocal {
		return out
	}
	out.local = &Route{}
	out.local.Endpoints = cs.pool(func(c *candidate) bool { return c.local && c.usable })
	out.localUsable = out.local.Endpoints != nil
	if !out.localUsable {
		out.local.Endpoints = cs.pool(func(c *candidate) bool { return c.local })
	}
	if out.local.Endpoints == nil && out.cluster.Endpoints != nil {
		out.local.Empty = Drop
	}
	return out
}

// pool returns the candidates to keep as endpoints, nil for none.
func (cs *candidates) pool(keep func(*candidate) bool) []Endpoint {
	n := 0
	for i := range cs.found {
		if keep(&cs.found[i]) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	out := make([]Endpoint, 0, n)
	for i := range cs.found {
		if c := &cs.found[i]; keep(c) {
			out = append(out, Endpoint{netip.AddrPortFrom(cs.of(c).Addr, c.port), c.local})
		}
	}
	return out
}

// topology tells which hints mean this node, nil if hints are of no account.
// Hints for nodes go before hints for zones, and either counts only if every
// usable endpoint has some and one of them means this node.
func (cs *candidates) topology(env *environment) func(*model.Hints) bool {
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
			return nil
		}
		everyNode = everyNode && len(h.Nodes) > 0
		everyZone = everyZone && len(h.Zones) > 0
		anyNode = anyNode || everyNode && node(h)
		anyZone = anyZone || everyZone && zone(h)
	}
	switch {
	case everyNode && anyNode:
		return node
	case everyZone && anyZone:
		return zone
	}
	return nil
}

// endpointFault tells why an address of a slice cannot be an endpoint, or
// nothing.
func endpointFault(ip netip.Addr, f model.Family) string {
	if ip.IsLinkLocalUnicast() {
		return "is link-local"
	}
	if fault := addressFault(ip); fault != "" {
		return fault
	}
	if model.FamilyOf(ip) != f {
		return "is not of the slice's address type"
	}
	return ""
}

// addressFault tells why no connection can go to an address, or nothing.
func addressFault(ip netip.Addr) string {
	switch {
	case !ip.IsValid():
		return "is not an address"
	case ip.IsUnspecified():
		return "is the unspecified address"
	case ip.IsLoopback():
		return "is a loopback address"
	case ip.IsMulticast():
		return "is a multicast address"
	case ip.Is4In6():
		return "is an IPv4 address written as IPv6"
	case ip.Zone() != "":
		return "has a zone"
	}
	return ""
}
