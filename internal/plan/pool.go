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
	// local is nil unless the Service needs it.
	local *Route
	// localUsable says that the endpoints of local are usable ones, not the
	// terminating ones that stand in for them.
	localUsable bool
	// Endpoints that serve but are not in the cluster pool, not in the local pool,
	// not in either; as far as the policies of the Service have use for them.
	besideCluster, besideLocal, besideBoth []Endpoint
}

// candidate points at an endpoint that may get into a pool or keeps its flows. It
// holds what is sorted by and no pointer, which makes sorting the endpoints of a
// large Service cheaper.
type candidate struct {
	high, low uint64 // of the address
	port      uint16
	usable    bool
	fallback  bool // is serving and terminating: in a pool if nobody is usable
	serving   bool // some slice says so
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
		for j := range s.Ports {
			if serves(&s.Ports[j], port) {
				cs.add(env, i, s.Ports[j].Port)
			}
		}
	}
	slices.SortFunc(cs.found, candidate.compare)
	cs.mergeDuplicates()
}

// mergeDuplicates keeps the first of each endpoint. It serves if one of them does.
func (cs *candidates) mergeDuplicates() {
	kept := cs.found[:0]
	for _, c := range cs.found {
		if n := len(kept); n > 0 && kept[n-1].sameEndpoint(c) {
			kept[n-1].serving = kept[n-1].serving || c.serving
		} else {
			kept = append(kept, c)
		}
	}
	cs.found = kept
}

// serves tells whether a port of a slice is the one that a service port means.
func serves(p *model.SlicePort, port *model.ServicePort) bool {
	return p.Name == port.Name && p.Protocol == port.Protocol && p.Port != 0
}

func (cs *candidates) add(env *environment, slice int, port uint16) {
	s := cs.slices[slice]
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		serving := e.Conditions.Has(model.Serving)
		if !usable(e) && !serving || endpointFault(e.Addr, s.Family) != "" {
			continue
		}
		c := candidateAt(e.Addr, port)
		c.usable, c.fallback, c.serving, c.local = usable(e), servingTerminating(e), serving, env.local(e)
		c.slice, c.endpoint = int32(slice), int32(i)
		cs.found = append(cs.found, c)
	}
}

// candidacy tells why an endpoint of a slice may get into no pool, whatever
// others there are.
func candidacy(e *model.Endpoint, f model.Family) Reason {
	switch {
	case usable(e) || servingTerminating(e):
	case e.Conditions.Has(model.Terminating):
		return NotServing
	default:
		return NotReady
	}
	if endpointFault(e.Addr, f) != "" {
		return BadAddress
	}
	return InPool
}

func usable(e *model.Endpoint) bool { return e.Conditions.Has(model.Ready) }
func servingTerminating(e *model.Endpoint) bool {
	return e.Conditions.Has(model.Serving | model.Terminating)
}

// candidateAt is a candidate of that address and port, which must be valid.
func candidateAt(addr netip.Addr, port uint16) candidate {
	ip := addr.As16()
	return candidate{
		high: binary.BigEndian.Uint64(ip[:8]),
		low:  binary.BigEndian.Uint64(ip[8:]),
		port: port,
	}
}

// sameEndpoint tells whether two candidates are the same endpoint, found twice.
func (c candidate) sameEndpoint(o candidate) bool {
	return c.low == o.low && c.high == o.high && c.port == o.port
}

// compare puts the usable one of twins first, then one that stands in, and else
// the one found first.
func (c candidate) compare(o candidate) int {
	switch {
	case c.high != o.high:
		return cmp.Compare(c.high, o.high)
	case c.low != o.low:
		return cmp.Compare(c.low, o.low)
	case c.port != o.port:
		return cmp.Compare(c.port, o.port)
	case c.usable != o.usable:
		return trueFirst(c.usable)
	case c.fallback != o.fallback:
		return trueFirst(c.fallback)
	case c.slice != o.slice:
		return cmp.Compare(c.slice, o.slice)
	}
	return cmp.Compare(c.endpoint, o.endpoint)
}

// trueFirst compares two that differ.
func trueFirst(first bool) int {
	if first {
		return -1
	}
	return 1
}

// of returns the endpoint that a candidate points at.
func (cs *candidates) of(c *candidate) *model.Endpoint {
	return &cs.slices[c.slice].Endpoints[c.endpoint]
}

// pools selects the endpoints of the pools that a Service needs.
func (cs *candidates) pools(env *environment, svc *model.Service) pools {
	var out pools
	internalLocal, externalLocal := svc.InternalPolicy == model.PolicyLocal, svc.ExternalPolicy == model.PolicyLocal
	withLocal := internalLocal || externalLocal || svc.HealthCheckNodePort != 0
	s := cs.selection(env, withLocal)
	inCluster := func(c *candidate) bool { return s.cluster(c) == InPool }
	inLocal := func(c *candidate) bool { return s.local(c) == InPool }
	out.cluster.Endpoints = cs.endpoints(inCluster)
	out.besideCluster = cs.endpoints(func(c *candidate) bool { return c.serving && !inCluster(c) })
	if !withLocal {
		return out
	}
	out.local = &Route{Endpoints: cs.endpoints(inLocal), Local: true}
	out.localUsable = s.localUsable
	if internalLocal {
		out.besideLocal = cs.endpoints(func(c *candidate) bool { return c.serving && !inLocal(c) })
	}
	if externalLocal {
		out.besideBoth = cs.endpoints(func(c *candidate) bool { return c.serving && !inCluster(c) && !inLocal(c) })
	}
	if out.local.Endpoints == nil && out.cluster.Endpoints != nil {
		out.local.Empty = Refusal{Drop, NoLocalEndpoint}
	}
	return out
}

// endpoints returns some of the candidates as endpoints, nil for none.
func (cs *candidates) endpoints(wanted func(*candidate) bool) []Endpoint {
	n := 0
	for i := range cs.found {
		if wanted(&cs.found[i]) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	out := make([]Endpoint, 0, n)
	for i := range cs.found {
		if c := &cs.found[i]; wanted(c) {
			out = append(out, Endpoint{netip.AddrPortFrom(cs.of(c).Addr, c.port), c.local})
		}
	}
	return out
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
