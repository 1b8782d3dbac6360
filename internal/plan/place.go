package plan

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// place is what Services claim at an address and protocol where there are ranges.
type place struct {
	// ranges are the keys of those that are claimed, and how each was settled.
	ranges map[Key]rangeState
	// order are these keys by their ports; reach has, for each, the highest port of it and of those before.
	order []Key
	reach []uint16
	// singles are the single ports that are claimed, all of those within ranges among them.
	singles map[uint16]struct{}
}

// rangeState is who has a range: its best claimant, unless the range overlaps another one, winner.
// Otherwise winner is the range itself.
type rangeState struct {
	by     *claimant
	kind   Kind
	winner Key
}

// winner returns the key of the frontend that answers where a claimed one would: that itself, or for a
// range one that it overlaps.
func (p *Planner) winner(key Key) Key {
	if key.IsRange() {
		return p.places[key.place()].ranges[key].winner
	}
	return key
}

// served returns the claims of a key, the holder's first; none if another range is served there.
func (p *Planner) served(key Key) []claim[*Frontend] {
	all := p.frontends[key]
	if len(all) > 0 && p.winner(key) != key {
		return nil
	}
	return all
}

// settleRanges decides which of the ranges that overlap each other are served: in the order of their
// precedence, those that overlap none before them. To what has to be settled it adds the ranges that
// won or lost by that.
func (u *update) settleRanges() {
	changed, found := map[Key][]Key{}, []Key{}
	for _, key := range u.keys {
		if !key.IsRange() {
			continue
		}
		at := key.place()
		p := u.places[at]
		if p == nil {
			p = &place{ranges: map[Key]rangeState{}, singles: map[uint16]struct{}{}}
			u.places[at] = p
		}
		changed[at] = append(changed[at], key)
		if _, known := p.ranges[key]; !known {
			p.ranges[key] = rangeState{}
			found = append(found, key)
		}
	}
	if len(u.places) == 0 {
		return
	}
	u.findNodePorts(found)
	u.findSingles(found)
	for _, key := range u.keys {
		if !key.IsRange() {
			u.settleSingle(key)
		}
	}
	for at, keys := range changed {
		u.settlePlace(at, keys)
	}
	u.forgetNodePorts()
}

// nodePortsAt returns the place of the node ports that answer at the address of another place, too, and
// whether they do. Addresses that only the routing table knows are not known here.
func (u *update) nodePortsAt(at Key) (Key, bool) {
	is := u.desired.Settings.HasNodePorts(at.Addr, func(netip.Addr) bool { return false })
	return NodePortKey(at.Family(), 0, at.Protocol), is
}

// findNodePorts finds the node ports at the addresses of ranges that are new, or, if node ports moved to other
// addresses, of all. They are singles of a place of their own.
func (u *update) findNodePorts(found []Key) {
	if u.nodePortsMoved {
		found = slices.Collect(maps.Keys(u.places))
		for _, p := range u.places {
			for _, r := range p.order {
				touchClaimants(u, u.frontends[r])
			}
		}
	}
	for _, r := range found {
		at, is := u.nodePortsAt(r.place())
		if !is || u.places[at] != nil {
			continue
		}
		p := &place{singles: map[uint16]struct{}{}}
		u.places[at] = p
		for key := range u.frontends {
			if key.place() == at {
				p.singles[key.Port] = struct{}{}
			}
		}
	}
}

// forgetNodePorts forgets them if no range is left.
func (u *update) forgetNodePorts() {
	for _, p := range u.places {
		if len(p.order) > 0 {
			return
		}
	}
	clear(u.places)
}

// findSingles finds the single ports within ranges that are new.
func (u *update) findSingles(found []Key) {
	ports := 0
	for _, r := range found {
		ports += int(r.Last-r.Port) + 1
	}
	if ports > len(u.frontends) {
		for key := range u.frontends {
			if p := u.places[key.place()]; p != nil && !key.IsRange() {
				p.singles[key.Port] = struct{}{}
			}
		}
		return
	}
	for _, r := range found {
		p := u.places[r.place()]
		for port := int(r.Port); port <= int(r.Last); port++ {
			if _, claimed := u.frontends[r.within(uint16(port))]; claimed {
				p.singles[uint16(port)] = struct{}{}
			}
		}
	}
}

// settleSingle has the ranges report again that have a single port whose holder may have changed.
func (u *update) settleSingle(key Key) {
	p := u.places[key.place()]
	if p == nil {
		return
	}
	if _, claimed := u.frontends[key]; claimed {
		p.singles[key.Port] = struct{}{}
	} else {
		delete(p.singles, key.Port)
	}
	if !key.NodePort() {
		u.touchRanges(p, key.Port)
		return
	}
	for _, ip := range u.desired.Settings.NodePortAddrs(key.Family()) {
		if p := u.places[Key{Addr: ip, Protocol: key.Protocol}]; p != nil {
			u.touchRanges(p, key.Port)
		}
	}
}

// touchRanges has the ranges of a place report again that have a port.
func (u *update) touchRanges(p *place, port uint16) {
	after, _ := slices.BinarySearchFunc(p.order, port, func(r Key, port uint16) int {
		if r.Port <= port {
			return -1
		}
		return 1
	})
	for i := after - 1; i >= 0 && p.reach[i] >= port; i-- {
		if p.order[i].Last >= port {
			touchClaimants(u, u.frontends[p.order[i]])
		}
	}
}

// settlePlace decides about the ranges of a place that changed, and those with which they overlap, directly
// or by others between them. The rest stays as it is.
func (u *update) settlePlace(at Key, changed []Key) {
	p := u.places[at]
	slices.SortFunc(changed, comparePorts)
	for _, key := range changed {
		if i, known := slices.BinarySearchFunc(p.order, key, comparePorts); !known {
			p.order = slices.Insert(p.order, i, key)
		}
	}
	p.setReach()
	served, gone := slices.Clone(u.desired.Ranges[at]), 0
	for end, rest := 0, changed; len(rest) > 0; rest = rest[1:] {
		i, _ := slices.BinarySearchFunc(p.order, rest[0], comparePorts)
		if i < end { // settled with another one
			continue
		}
		var from int
		from, end = p.overlapping(i)
		group := p.order[from:end]
		first, _ := slices.BinarySearchFunc(served, group[0].Port, comparePort)
		last, _ := slices.BinarySearchFunc(served, int(p.reach[end-1])+1, func(k Key, port int) int { return cmp.Compare(int(k.Port), port) })
		now, lost := u.settleGroup(p, group)
		served, gone = slices.Replace(served, first, last, now...), gone+lost
	}
	if gone > 0 {
		p.order = slices.DeleteFunc(p.order, func(k Key) bool { _, there := p.ranges[k]; return !there })
		p.setReach()
	}
	if len(p.order) == 0 {
		delete(u.places, at)
	}
	u.desired.Ranges.set(at, served)
}

// comparePorts orders keys of one place.
func comparePorts(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Last, b.Last))
}

func comparePort(k Key, port uint16) int { return cmp.Compare(k.Port, port) }

func (p *place) setReach() {
	p.reach = p.reach[:0]
	highest := uint16(0)
	for _, k := range p.order {
		highest = max(highest, k.Last)
		p.reach = append(p.reach, highest)
	}
}

// overlapping returns where in order those are with which the i-th overlaps, directly or by others.
func (p *place) overlapping(i int) (from, end int) {
	for from = i; from > 0 && p.reach[from-1] >= p.order[from].Port; from-- {
	}
	for end = i + 1; end < len(p.order) && p.order[end].Port <= p.reach[end-1]; end++ {
	}
	return from, end
}

// settleGroup decides about ranges that overlap. It returns those that are served, by their ports, and how
// many are claimed no longer.
func (u *update) settleGroup(p *place, group []Key) (served []Key, gone int) {
	before, inOrder := map[Key]rangeState{}, []Key{}
	for _, key := range group {
		before[key] = p.ranges[key]
		if _, claimed := u.frontends[key]; claimed {
			inOrder = append(inOrder, key)
		} else {
			delete(p.ranges, key)
			gone++
		}
	}
	slices.SortFunc(inOrder, func(a, b Key) int {
		return cmp.Or(u.frontends.holder(a).compare(u.frontends.holder(b)), a.Compare(b))
	})
	for _, key := range inOrder {
		h := u.frontends.holder(key)
		state := rangeState{by: h.claimant, kind: h.value.Kind, winner: key}
		switch i, _ := slices.BinarySearchFunc(served, key, comparePorts); {
		case i > 0 && served[i-1].Overlaps(key):
			state.winner = served[i-1]
		case i < len(served) && served[i].Overlaps(key):
			state.winner = served[i]
		default:
			served = slices.Insert(served, i, key)
		}
		p.ranges[key] = state
	}
	for _, key := range inOrder {
		now := p.ranges[key]
		if now != before[key] {
			u.keys = append(u.keys, key)
		}
		if now != before[key] || p.ranges[now.winner] != before[now.winner] {
			touchClaimants(u, u.frontends[key]) // who won is in the reports of the others
		}
	}
	return served, gone
}
