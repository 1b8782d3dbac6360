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
	// terminating ones that are used if there are none.
	localUsable bool
	// Endpoints that serve but are not in the cluster pool, not in the local
	// pool, or in neither, if the policies of the Service need them.
	besideCluster, besideLocal, besideBoth []Endpoint
	// watched is as in Frontend, ejected those that are left out of a pool because they do not
	// answer. allStay says that too many of a pool do not answer for that.
	watched bool
	// direct is nil unless other nodes answer connections themselves.
	direct  *Direct
	ejected []Endpoint
	allStay bool
}

// candidate refers to an endpoint that may get into a pool or keep its flows.
// It holds the sort key and no pointer, which makes sorting the endpoints of a
// large Service cheaper.
type candidate struct {
	high, low uint64 // of the address
	port      uint16
	usable    bool
	fallback  bool // serving and terminating: used if no endpoint is usable
	serving   bool // according to some slice
	local     bool
	failing   bool // connections to it are not answered
	ejected   bool // and it is not on trial
	weight    uint16
	slice     int32
	endpoint  int32
}

// candidates are those of one service port and family, sorted by address and
// port, without duplicates. The memory is reused.
type candidates struct {
	slices []*model.Slice
	found  []candidate
	memory []candidate // of found
	facts  []sliceFacts
	// ejected are those that are not answered; some of them may be no candidates.
	ejected []model.Ejection
	// weighted says that a slice has a weight, and allZero that it was 0 for
	// all endpoints that could be used: weights do not count then.
	weighted, allZero bool
}

// gather finds the candidates in the slices of a Service.
func (cs *candidates) gather(env *environment, all []*model.Slice, port *model.ServicePort, f model.Family) {
	key := keyOf(env, port, f)
	cs.slices, cs.found, cs.weighted, cs.allZero = all, cs.memory[:0], false, false
	for i, s := range all {
		cs.weighted = cs.weighted || s.Family == f && s.Weight != nil
		cs.gatherSlice(env, i, &key)
	}
	cs.memory = cs.found
	slices.SortFunc(cs.found, candidate.compare)
	cs.consider(port)
}

// take takes the candidates of a roster.
func (cs *candidates) take(r *roster, port *model.ServicePort) {
	cs.slices, cs.weighted, cs.allZero = r.slices, r.weighted > 0, false
	cs.memory = append(cs.memory[:0], r.found...)
	cs.found = cs.memory
	cs.consider(port)
}

// consider merges duplicates, and considers ejections and weights.
func (cs *candidates) consider(port *model.ServicePort) {
	cs.mergeDuplicates()
	cs.markEjected(port.Protocol)
	if cs.weighted {
		cs.drain()
	}
}

// gatherSlice adds the candidates of one slice.
func (cs *candidates) gatherSlice(env *environment, i int, key *rosterKey) {
	s := cs.slices[i]
	if s.Family != key.family {
		return
	}
	for j := range s.Ports {
		if p := &s.Ports[j]; serves(p, key.port, key.protocol) {
			cs.add(env, i, p.Port)
		}
	}
}

// mergeDuplicates keeps the first of each endpoint. It is serving if one of
// them is.
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

// serves reports whether a port of a slice belongs to a service port.
func serves(p *model.SlicePort, name string, protocol model.Protocol) bool {
	return p.Name == name && p.Protocol == protocol && p.Port != 0
}

func (cs *candidates) add(env *environment, slice int, port uint16) {
	s := cs.slices[slice]
	weight := uint16(model.DefaultWeight)
	if s.Weight != nil {
		weight = *s.Weight
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		serving := e.Conditions.Has(model.Serving)
		if !usable(e) && !serving || endpointFault(e.Addr, s.Family) != "" {
			continue
		}
		c := candidateAt(e.Addr, port)
		c.usable, c.fallback, c.serving, c.local = usable(e), servingTerminating(e), serving, env.local(e)
		c.weight, c.slice, c.endpoint = weight, int32(slice), int32(i)
		cs.found = append(cs.found, c)
	}
}

// candidacy returns why an endpoint of a slice cannot get into any pool,
// regardless of other endpoints.
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

// candidateAt returns a candidate with a valid address and port.
func candidateAt(addr netip.Addr, port uint16) candidate {
	ip := addr.As16()
	return candidate{
		high: binary.BigEndian.Uint64(ip[:8]),
		low:  binary.BigEndian.Uint64(ip[8:]),
		port: port,
	}
}

// sameEndpoint reports whether two candidates have the same address and port.
func (c candidate) sameEndpoint(o candidate) bool {
	return c.low == o.low && c.high == o.high && c.port == o.port
}

// compareEndpoint orders by address and port.
func (c candidate) compareEndpoint(o candidate) int {
	return cmp.Or(cmp.Compare(c.high, o.high), cmp.Compare(c.low, o.low), cmp.Compare(c.port, o.port))
}

// compare orders by address and port. Of duplicates, a usable one comes first,
// then one that is serving and terminating, then the one with the greatest
// weight, then the one found first.
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
	case !c.usable && c.fallback != o.fallback:
		return trueFirst(c.fallback)
	case c.weight != o.weight:
		return cmp.Compare(o.weight, c.weight)
	case c.slice != o.slice:
		return cmp.Compare(c.slice, o.slice)
	}
	return cmp.Compare(c.endpoint, o.endpoint)
}

// trueFirst compares two booleans that differ, of which it gets the first.
func trueFirst(first bool) int {
	if first {
		return -1
	}
	return 1
}

func (cs *candidates) of(c *candidate) *model.Endpoint {
	return &cs.slices[c.slice].Endpoints[c.endpoint]
}

// pools selects the endpoints of the pools that a Service needs.
func (cs *candidates) pools(env *environment, svc *model.Service) pools {
	var out pools
	internalLocal, externalLocal := svc.InternalPolicy == model.PolicyLocal, svc.ExternalPolicy == model.PolicyLocal
	withLocal := withLocal(svc)
	s := cs.selection(env, withLocal)
	out.allStay = s.clusterStays || withLocal && s.localStays
	inCluster := func(c *candidate) bool { return s.cluster(c) == InPool }
	inLocal := func(c *candidate) bool { return s.local(c) == InPool }
	out.cluster.Endpoints = cs.pool(inCluster)
	if len(cs.ejected) > 0 {
		out.ejected = cs.endpoints(func(c *candidate) bool { return s.cluster(c) == Ejected || withLocal && s.local(c) == Ejected })
	}
	out.besideCluster = cs.endpoints(func(c *candidate) bool { return c.serving && !inCluster(c) })
	if !withLocal {
		return out
	}
	out.local = &Route{Endpoints: cs.pool(inLocal), Local: true}
	out.localUsable = s.localUsable
	if internalLocal {
		out.besideLocal = cs.endpoints(func(c *candidate) bool { return c.serving && !inLocal(c) })
	}
	if externalLocal {
		out.besideBoth = cs.endpoints(func(c *candidate) bool { return c.serving && !inCluster(c) && !inLocal(c) })
	}
	if out.local.Endpoints == nil && out.cluster.Endpoints != nil {
		out.local.Empty = Refusal{Drop, NoLocalEndpoints}
	}
	return out
}

// withLocal reports whether a Service needs to know which endpoints are on this node.
func withLocal(svc *model.Service) bool {
	return svc.InternalPolicy == model.PolicyLocal || svc.ExternalPolicy == model.PolicyLocal || svc.HealthCheckNodePort != 0 || svc.PreserveDestination
}

// endpoints returns the wanted candidates as endpoints, nil for none.
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
			out = append(out, Endpoint{AddrPort: netip.AddrPortFrom(cs.of(c).Addr, c.port), Local: c.local})
		}
	}
	return out
}

// endpointFault returns why an address in a slice cannot be an endpoint, "" if
// it can.
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

// addressFault returns why no connection can go to an address, "" if one can.
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
