package plan

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// manyEndpoints is how many endpoints a Service has in its slices for its plan to follow them.
const manyEndpoints = 1000

// rosters are kept of a Service with very many endpoints from one plan to the next, so that a plan
// takes a time that follows what changed in the slices, and not the Service. They hold nothing that
// does not follow from the slices: without them the plan is the same.
type rosters struct {
	of map[rosterKey]*roster
	// facts are those of a node of that name.
	facts    map[*model.Slice]sliceFacts
	nodeName string
}

// rosterKey is what decides which endpoints of slices are candidates.
type rosterKey struct {
	nodeName string
	port     string
	protocol model.Protocol
	family   model.Family
}

func keyOf(env *environment, port *model.ServicePort, f model.Family) rosterKey {
	return rosterKey{env.nodeName, port.Name, port.Protocol, f}
}

// have reports whether slices have that many endpoints.
func have(all []*model.Slice, many int) bool {
	for _, s := range all {
		many -= len(s.Endpoints)
	}
	return many <= 0
}

// roster is the candidates of a service port and family in order, before duplicates are merged and
// weights and ejections considered, and the pools that they make in the usual case.
type roster struct {
	key    rosterKey
	slices []*model.Slice
	found  []candidate
	// duplicates says that some are of the same endpoint. The others are counted.
	duplicates                                bool
	usable, unhinted, localUsable, localOther int
	weighted                                  int // slices
	pools                                     map[rosterPool][]Endpoint
	used                                      bool // by the last plan
}

// rosterPool is a list of endpoints. Which are in it does not depend on other ones, in the usual case.
type rosterPool uint8

const (
	clusterPool rosterPool = iota
	localPool
	besideCluster // serves, and is not in the cluster pool
	besideLocal
	numRosterPools
)

// has reports whether a candidate is in a list. What serves beside both pools is what serves beside the
// cluster pool: it has all of the local one.
func (p rosterPool) has(c *candidate) bool {
	switch p {
	case clusterPool:
		return c.usable
	case localPool:
		return c.usable && c.local
	case besideCluster:
		return c.serving && !c.usable
	}
	return c.serving && !(c.usable && c.local)
}

// roster returns that of a service port and family, as the slices are now.
func (rs *rosters) roster(env *environment, all []*model.Slice, port *model.ServicePort, f model.Family) *roster {
	key := keyOf(env, port, f)
	r := rs.of[key]
	if r == nil {
		r = &roster{key: key}
		rs.of[key] = r
	}
	r.used = true
	r.follow(env, all)
	return r
}

// done forgets what the last plan did not use.
func (rs *rosters) done() {
	for key, r := range rs.of {
		if !r.used {
			delete(rs.of, key)
		}
		r.used = false
	}
}

// follow exchanges the candidates of slices that changed.
func (r *roster) follow(env *environment, all []*model.Slice) {
	var gone, come candidates
	gone.slices, come.slices = r.slices, all
	at := make([]int32, len(r.slices)) // where each slice is now
	i, j, moved := 0, 0, false
	for old, new := range Merge(r.slices, all, func(a, b *model.Slice) int { return a.Name.Compare(b.Name) }) {
		if same := old != nil && new != nil && *old == *new; !same && old != nil {
			gone.gatherSlice(env, i, &r.key)
			r.weigh(*old, -1)
		}
		if same := old != nil && new != nil && *old == *new; !same && new != nil {
			come.gatherSlice(env, j, &r.key)
			r.weigh(*new, +1)
		}
		if old != nil {
			at[i] = int32(j)
			moved = moved || i != j
			i++
		}
		if new != nil {
			j++
		}
	}
	slices.SortFunc(gone.found, candidate.compare)
	slices.SortFunc(come.found, candidate.compare)
	r.count(&gone, -1)
	r.count(&come, +1)
	r.slices = slices.Clone(all)
	if moved {
		r.found = patch(r.found, gone.found, nil, candidate.compare)
		for i := range r.found {
			r.found[i].slice = at[r.found[i].slice]
		}
		r.found = patch(r.found, nil, come.found, candidate.compare)
	} else {
		r.exchange(gone.found, come.found)
	}
	r.findDuplicates(come.found)
	r.patchPools(gone.found, come.found)
}

// exchange replaces candidates by others: where it can, without moving the rest.
func (r *roster) exchange(gone, come []candidate) {
	const few = 8 // moves take less time than a copy
	moves := 0
	for old, new := range Merge(gone, come, candidate.compareEndpoint) {
		if old == nil || new == nil {
			moves++
		}
	}
	if r.duplicates || moves > few {
		r.found = patch(r.found, gone, come, candidate.compare)
		return
	}
	for old, new := range Merge(gone, come, candidate.compareEndpoint) {
		switch {
		case old == nil:
			i, _ := slices.BinarySearchFunc(r.found, *new, candidate.compare)
			r.found = slices.Insert(r.found, i, *new)
		case new == nil:
			i, _ := slices.BinarySearchFunc(r.found, *old, candidate.compareEndpoint)
			r.found = slices.Delete(r.found, i, i+1)
		default:
			i, _ := slices.BinarySearchFunc(r.found, *old, candidate.compareEndpoint)
			r.found[i] = *new
		}
	}
}

func (r *roster) weigh(s *model.Slice, n int) {
	if s.Family == r.key.family && s.Weight != nil {
		r.weighted += n
	}
}

func (r *roster) count(cs *candidates, n int) {
	for i := range cs.found {
		c := &cs.found[i]
		switch {
		case c.usable && c.local:
			r.localUsable += n
		case c.fallback && c.local:
			r.localOther += n
		}
		if c.usable {
			r.usable += n
			if cs.of(c).Hints == nil {
				r.unhinted += n
			}
		}
	}
}

// findDuplicates looks for duplicates after some came: near those, unless there were some before.
func (r *roster) findDuplicates(come []candidate) {
	same := func(i int) bool { return i > 0 && i < len(r.found) && r.found[i].sameEndpoint(r.found[i-1]) }
	if r.duplicates || len(come) > len(r.found)/8 {
		r.duplicates = false
		for i := 1; i < len(r.found) && !r.duplicates; i++ {
			r.duplicates = same(i)
		}
		return
	}
	for _, c := range come {
		i, _ := slices.BinarySearchFunc(r.found, c, candidate.compare)
		if same(i) || same(i+1) {
			r.duplicates = true
			return
		}
	}
}

// usual reports whether it depends on each candidate alone which lists it is in: there are usable
// ones, and no duplicates, weights and hints that say otherwise.
func (r *roster) usual(withLocal bool) bool {
	return r.usable > 0 && r.unhinted > 0 && !r.duplicates && r.weighted == 0 &&
		(!withLocal || r.localUsable > 0 || r.localOther == 0)
}

// list returns a list of the usual case. It is the same one until its contents change.
func (r *roster) list(p rosterPool) []Endpoint {
	out, known := r.pools[p]
	if !known {
		for i := range r.found {
			if c := &r.found[i]; p.has(c) {
				out = append(out, c.at(r.key.family))
			}
		}
		if r.pools == nil {
			r.pools = map[rosterPool][]Endpoint{}
		}
		r.pools[p] = out
	}
	return out
}

// patchPools exchanges candidates in the lists that are known.
func (r *roster) patchPools(gone, come []candidate) {
	if r.duplicates {
		r.pools = nil
		return
	}
	for p, list := range r.pools {
		in := func(some []candidate) (out []Endpoint) {
			for i := range some {
				if c := &some[i]; p.has(c) {
					out = append(out, c.at(r.key.family))
				}
			}
			return out
		}
		var less, more []Endpoint
		for old, new := range Merge(in(gone), in(come), compareEndpoints) {
			if old != nil && new != nil && *old == *new {
				continue
			}
			if old != nil {
				less = append(less, *old)
			}
			if new != nil {
				more = append(more, *new)
			}
		}
		if len(less)+len(more) > 0 {
			r.pools[p] = patch(list, less, more, compareEndpoints)
		}
	}
}

func compareEndpoints(a, b Endpoint) int { return a.Compare(b.AddrPort) }

// patch returns a sorted list without what is gone, which is in it, and with what came. It copies what
// is between as a whole.
func patch[T any](list, gone, come []T, compare func(a, b T) int) []T {
	if len(gone)+len(come) == 0 {
		return list
	}
	if len(list) == 0 {
		return come
	}
	out := make([]T, 0, len(list)-len(gone)+len(come))
	upTo := func(v T) {
		i, _ := slices.BinarySearchFunc(list, v, compare)
		out, list = append(out, list[:i]...), list[i:]
	}
	for old, new := range Merge(gone, come, compare) {
		if old != nil {
			upTo(*old)
			list = list[1:]
		}
		if new != nil {
			upTo(*new)
			out = append(out, *new)
		}
	}
	if out = append(out, list...); len(out) == 0 {
		return nil
	}
	return out
}

// poolsOf are the pools that a Service needs, in the usual case.
func (r *roster) poolsOf(svc *model.Service) pools {
	out := pools{cluster: Route{Endpoints: r.list(clusterPool)}, besideCluster: r.list(besideCluster)}
	if !withLocal(svc) {
		return out
	}
	out.local = &Route{Endpoints: r.list(localPool), Local: true}
	out.localUsable = r.localUsable > 0
	if svc.InternalPolicy == model.PolicyLocal {
		out.besideLocal = r.list(besideLocal)
	}
	if svc.ExternalPolicy == model.PolicyLocal {
		out.besideBoth = r.list(besideCluster)
	}
	if out.local.Endpoints == nil {
		out.local.Empty = Refusal{Drop, NoLocalEndpoints}
	}
	return out
}

// at is the candidate as an endpoint.
func (c *candidate) at(f model.Family) Endpoint {
	var ip [16]byte
	binary.BigEndian.PutUint64(ip[:8], c.high)
	binary.BigEndian.PutUint64(ip[8:], c.low)
	addr := netip.AddrFrom16(ip)
	if f == model.IPv4 {
		addr = addr.Unmap()
	}
	return Endpoint{AddrPort: netip.AddrPortFrom(addr, c.port), Local: c.local}
}

// sliceFacts are what problems need to know about all endpoints of a slice.
type sliceFacts struct {
	runs       bool // one of them runs on this node
	bad, first int  // how many addresses are none of an endpoint, and the first
}

// factsOf returns those of a slice.
func (rs *rosters) factsOf(env *environment, s *model.Slice) (f sliceFacts) {
	if rs != nil && rs.nodeName == env.nodeName {
		if f, known := rs.facts[s]; known {
			return f
		}
	}
	for i := range s.Endpoints {
		f.runs = f.runs || env.local(&s.Endpoints[i])
		if endpointFault(s.Endpoints[i].Addr, s.Family) == "" {
			continue
		}
		if f.bad == 0 {
			f.first = i
		}
		f.bad++
	}
	return f
}

// keepFacts keeps those of slices for the next plan.
func (rs *rosters) keepFacts(env *environment, all []*model.Slice, facts []sliceFacts) {
	if rs == nil {
		return
	}
	rs.nodeName, rs.facts = env.nodeName, make(map[*model.Slice]sliceFacts, len(all))
	for i, s := range all {
		rs.facts[s] = facts[i]
	}
}
