//go:build linux

package nftables

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// programmed is what the kernel holds, or should hold, for one frontend.
type programmed struct {
	// Names of the chains that the frontend's verdict elements lead to: "" if there is
	// no element, dropName or passName if there is only a verdict.
	verdict, outside, recall, sticky string
	// slots are the endpoints by index. Slots read from the kernel can be empty (not
	// valid).
	slots, outsideSlots []netip.AddrPort
	sources             []netip.Prefix
	filters             bool // only sources may connect
	// blocks of a range are the elements of verdict, outsideBlocks those of outside.
	blocks, outsideBlocks []portBlock
	// Counters, if they were read: packets and bytes of the verdict, packets of the
	// outside verdict, and packets that the filter dropped.
	packets, bytes                  uint64
	outsidePackets, filteredPackets uint64
}

// size estimates the number of elements.
func (p *programmed) size() int {
	return len(p.slots) + len(p.outsideSlots) + len(p.sources) + len(p.blocks) + len(p.outsideBlocks)
}

var dropName, passName = fixedNames[drop], fixedNames[pass]

// chainsOf is the chains that a frontend's elements lead to.
type chainsOf struct{ verdict, outside, recall, sticky, find chain }

func (c chainsOf) all() [5]chain {
	return [5]chain{c.verdict, c.outside, c.recall, c.sticky, c.find}
}

// chainsFor returns the chains of a frontend, in a table with a target.
func chainsFor(f *plan.Frontend, target *Target) chainsOf {
	var c chainsOf
	if isPool(f.Key) {
		return c
	}
	e := chain{
		kind:       entry,
		nodePort:   f.NodePort(),
		sticky:     remembers(f),
		filtered:   f.Filtered,
		split:      f.Outside != nil,
		masquerade: f.Masquerade,
	}
	if f.IsRange() {
		e.ports = f.Ports()
		c.find = chain{kind: findRange}
	}
	e.choose(f, &f.Route, target)
	if e.size == 0 {
		if e.sticky, e.verdict = false, f.Route.Empty.Verdict; e.verdict == plan.Pass || e.ranged() && !e.split {
			e.masquerade = plan.MasqueradeNever // the mark would stay with the packet, or is of no use
		}
	}
	if f.Filtered && len(f.Sources) > 0 {
		e.lengths, e.protocol = lengthsOf(f.Sources), f.Protocol
	}
	c.verdict = e.direct()
	if f.Outside != nil {
		o := chain{kind: entry, nodePort: e.nodePort, ports: e.ports, local: true, sticky: remembers(f)}
		o.choose(f, f.Outside, target)
		if o.size == 0 {
			o = chain{kind: entry, ports: e.ports, verdict: f.Outside.Empty.Verdict}
		}
		c.outside = o.direct()
	}
	if remembers(f) {
		id := affinityOf(f)
		c.recall = chain{kind: recall, port: id, protocol: f.Protocol, local: f.Route.Local, split: f.Outside != nil}
		c.sticky = chain{kind: remember, port: id, protocol: f.Protocol, seconds: f.Affinity}
	}
	return c
}

// ownSlots reports whether a route has slots, in maps of which each frontend has its own elements.
func ownSlots(r *plan.Route) bool { return !r.Delegated() && !pooled(r) }

// slots returns the slots of a pool. Only for random choices among equals does it not
// matter which endpoint has which slot. The old slots follow from was, unless it is nil or empty.
func (t *table) slots(old []netip.AddrPort, was, r *plan.Route) []netip.AddrPort {
	switch {
	case anySlot(r) && was != nil && anySlot(was) && len(old) == len(was.Endpoints) && len(old) > 0:
		return exchangeSlots(old, was.Endpoints, r.Endpoints)
	case anySlot(r) || len(r.Endpoints) == 0:
		return assignSlots(old, r.Endpoints)
	}
	shared := sharedSlots{&r.Endpoints[0], len(r.Endpoints), r.Algorithm}
	if t.shared[shared] == nil {
		t.shared[shared] = r.Slots()
	}
	return t.shared[shared]
}

// anySlot reports whether it does not matter which endpoint has which slot.
func anySlot(r *plan.Route) bool { return r.Algorithm == model.Random && !r.Weighted() }

// sharedSlots is a pool whose slots are the same for all frontends of a service port.
type sharedSlots struct {
	first     *plan.Endpoint
	size      int
	algorithm model.Algorithm
}

// assignSlots assigns slots 0 to len(want)-1 to the endpoints. Those that have one
// keep it, the others fill the gaps, so that as few slots as possible change. Which
// endpoint has which slot is all that depends on history, and no packet can tell.
func assignSlots(old []netip.AddrPort, want []plan.Endpoint) []netip.AddrPort {
	if len(old) == 0 {
		slots := make([]netip.AddrPort, len(want))
		for i, e := range want {
			slots[i] = e.AddrPort
		}
		return slots
	}
	unplaced, kept := unplaced(old, want)
	if len(unplaced) == 0 && len(old) == len(want) {
		return old
	}
	slots := make([]netip.AddrPort, len(want))
	copy(slots, old)
	next := 0
	for i := range slots {
		if i < len(old) && kept[i] {
			continue
		}
		slots[i] = unplaced[next]
		next++
	}
	return slots
}

// exchangeSlots is assignSlots for a pool whose slots have exactly the endpoints that it had. It takes a
// time that follows the difference, besides copying.
func exchangeSlots(old []netip.AddrPort, was, want []plan.Endpoint) []netip.AddrPort {
	var gone, unplaced []netip.AddrPort
	for before, after := range plan.DifferentEndpoints(was, want) {
		if after == nil {
			gone = append(gone, before.AddrPort)
		} else {
			unplaced = append(unplaced, after.AddrPort)
		}
	}
	if len(gone)+len(unplaced) == 0 {
		return old
	}
	slots := make([]netip.AddrPort, len(want))
	kept := copy(slots, old)
	var gaps []int
	if len(gone) > 0 {
		left := oneOf(gone)
		for i, ep := range old {
			switch left := left(ep); {
			case left && i < kept:
				gaps = append(gaps, i)
			case !left && i >= kept:
				unplaced = append(unplaced, ep)
			}
		}
	}
	for i := kept; i < len(want); i++ {
		gaps = append(gaps, i)
	}
	for i, at := range gaps {
		slots[at] = unplaced[i]
	}
	return slots
}

// oneOf returns a function that reports whether an endpoint is in a list.
func oneOf(list []netip.AddrPort) func(netip.AddrPort) bool {
	const few = 8 // are faster without a map
	if len(list) <= few {
		return func(ep netip.AddrPort) bool { return slices.Contains(list, ep) }
	}
	set := make(map[netip.AddrPort]struct{}, len(list))
	for _, ep := range list {
		set[ep] = struct{}{}
	}
	return func(ep netip.AddrPort) bool { _, is := set[ep]; return is }
}

// unplaced returns the endpoints that need a slot, which are new or whose slot is
// beyond the end, and which slots stay.
func unplaced(old []netip.AddrPort, want []plan.Endpoint) (unplaced []netip.AddrPort, kept []bool) {
	kept = make([]bool, len(old))
	placed := make([]bool, len(want))
	for i, ep := range old[:min(len(old), len(want))] {
		at, found := slices.BinarySearchFunc(want, ep, func(w plan.Endpoint, ep netip.AddrPort) int {
			return w.Compare(ep)
		})
		if found && !placed[at] {
			kept[i], placed[at] = true, true
		}
	}
	for i, w := range want {
		if !placed[i] {
			unplaced = append(unplaced, w.AddrPort)
		}
	}
	return unplaced, kept
}

// hairpins returns the endpoints that could connect to themselves through the frontend
// without being masqueraded for another reason.
func (f *frontend) hairpins() [2][]plan.Endpoint {
	switch {
	case f == nil || f.ProxyConnects || isPool(f.Key) || f.Masquerade == plan.MasqueradeAlways:
		return [2][]plan.Endpoint{}
	case f.Outside != nil:
		return [2][]plan.Endpoint{f.Route.Endpoints, f.Outside.Endpoints}
	}
	return [2][]plan.Endpoint{f.Route.Endpoints}
}
