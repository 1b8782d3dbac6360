//go:build linux

package nftables

import (
	"net/netip"
	"time"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// nodeNumber stands for the address of a node in the slots of a family's pools.
type nodeNumber uint16

const (
	thisNode    nodeNumber = 0
	unknownNode nodeNumber = 1 // which nothing can be handed to
)

// directPool is the frontends of a service port in one family, which share a lookup table.
type directPool struct {
	id        affinityID
	protocol  model.Protocol
	frontends map[plan.Key]*plan.Frontend

	of    *plan.Direct // whose lookup table is next
	table []uint16
	// slots are the nodes that have them, former other nodes that had them before, the last one first.
	slots  []nodeNumber
	former []candidates
	// moved is when a slot last moved.
	moved time.Time
	// begins is when packets begin to be handed on; zero if they are.
	begins time.Time

	// The kernel's: nil if it has nothing of the pool.
	now *directProgram
}

// directProgram is what the kernel has of a pool.
type directProgram struct {
	// handed and asked are the elements of these maps, by slot, thisNode for none; own are those of that set.
	handed []nodeNumber
	asked  [len(candidates{})][]nodeNumber
	own    []bool
	local  []netip.AddrPort
	// elements lead packets to the pool's chains.
	elements map[directElement]string
}

func newDirectProgram() *directProgram {
	w := &directProgram{handed: make([]nodeNumber, plan.DirectSlots), own: make([]bool, plan.DirectSlots),
		elements: map[directElement]string{}}
	for c := range w.asked {
		w.asked[c] = make([]nodeNumber, plan.DirectSlots)
	}
	return w
}

// directElement is one of the elements that lead to a pool's chains.
type directElement struct {
	ingress  bool // of the table of family netdev
	set, key string
}

// datagramMemory is for how long a UDP flow goes to the node that had its slot before: longer than the kernel
// remembers one of which no more packets come. Every new flow looks like one that began there.
const datagramMemory = 3 * time.Minute

// candidates are nodes that may know a connection, thisNode for none.
type candidates [3]nodeNumber

// prepend puts a node first, and makes room for it if need be.
func (c candidates) prepend(n nodeNumber) (out candidates) {
	out[0] = n
	at := 1
	for _, other := range c {
		if other != n && other != thisNode && at < len(out) {
			out[at] = other
			at++
		}
	}
	return out
}

// assign takes over the lookup table, and remembers who had slots before.
func (p *directPool) assign(slots []nodeNumber, now time.Time) {
	if p.slots == nil {
		p.slots, p.former = slots, make([]candidates, len(slots))
		return
	}
	for i, n := range slots {
		before := p.slots[i]
		switch {
		case n == before:
			continue
		case p.protocol != model.TCP:
			// Whoever got the slot since had all flows served by the first.
			if p.former[i][0] == thisNode {
				p.former[i][0] = max(before, unknownNode)
			}
		case before != thisNode && before != unknownNode:
			p.former[i] = p.former[i].prepend(before)
		}
		p.moved = now
	}
	p.slots = slots
}

// forget forgets who had slots before, of datagrams, and reports whether that changed something.
func (p *directPool) forget(now time.Time) bool {
	if p.protocol == model.TCP || p.moved.IsZero() || now.Sub(p.moved) < datagramMemory {
		return false
	}
	clear(p.former)
	p.moved = time.Time{}
	return true
}

// begin reports whether it is time to begin to hand on packets.
func (p *directPool) begin(now time.Time) bool {
	if p.begins.IsZero() || now.Before(p.begins) {
		return false
	}
	p.begins = time.Time{}
	return true
}

// asked returns which nodes are asked for connections of a slot that are not known here. Where there is no
// handshake what begins cannot be told from what is not known, and one node has all that came before and since.
func (p *directPool) asked(i int, f *directFamily) (out candidates) {
	owner, all := p.slots[i], p.former[i]
	switch {
	case owner == thisNode || owner == unknownNode:
	case p.protocol == model.TCP:
		all = all.prepend(owner)
	case all[0] == thisNode && f.usable[owner]:
		all[0] = owner
	}
	at := 0
	for _, n := range all {
		if n > unknownNode && f.reached[n] {
			out[at] = n
			at++
		}
	}
	return out
}

// route is where connections are led here: to endpoints of this node, or, if there are none but packets to
// node ports of other nodes may come, to those of the cluster, which answer this node.
func (p *directPool) route() (r *plan.Route, masquerade bool) {
	for _, f := range p.frontends {
		if l := f.Direct.Local; l != nil && len(l.Endpoints) > 0 {
			return l, false
		}
	}
	for _, f := range p.frontends {
		if f.NodePort() && len(f.Route.Endpoints) > 0 {
			return &f.Route, true
		}
	}
	return nil, false
}

// want returns what the kernel should have of the pool, and the rules' part of it.
func (p *directPool) want(f *directFamily, d *directState) (*directProgram, *poolRules) {
	w := newDirectProgram()
	for i, n := range p.slots {
		w.own[i] = n == thisNode
		if !p.begins.IsZero() {
			continue // nobody is asked for connections that others do not know yet
		}
		if f.usable[n] {
			w.handed[i] = n
		}
		for c, n := range p.asked(i, f) {
			w.asked[c][i] = n
		}
	}
	rules := &poolRules{layout: f.layout, id: p.id, protocol: p.protocol, device: d.settings.Index}
	route, masquerade := p.route()
	if route != nil {
		var now []netip.AddrPort
		if p.now != nil {
			now = p.now.local
		}
		if w.local = route.Slots(); anySlot(route) {
			w.local = assignSlots(now, route.Endpoints)
		}
		rules.locals = len(w.local)
		switch {
		case route.ByClient():
			rules.choice = byClient
		case route.Algorithm == model.RoundRobin:
			rules.choice = inTurn
		}
		if masquerade {
			rules.mark = d.settings.MasqueradeMark
		}
	}
	for k, fe := range p.frontends {
		rules.byAddress = fe.Direct.ByAddress
		p.lead(w, f, d, k, route != nil, masquerade)
	}
	return w, rules
}

// lead adds the elements of a frontend.
func (p *directPool) lead(w *directProgram, f *directFamily, d *directState, k plan.Key, served, masquerade bool) {
	var a arena
	ingress := func(addr netip.Addr) {
		if !p.begins.IsZero() {
			return
		}
		key := string(a.frontendKey(plan.Key{Addr: addr, Port: k.Port, Protocol: k.Protocol}))
		w.elements[directElement{true, ingressFrontends(f.family), key}] = passOf(p.id)
		w.elements[directElement{true, ingressErrors(f.family), key}] = errorOf(p.id)
	}
	key := string(a.frontendKey(k))
	if !k.NodePort() {
		ingress(k.Addr)
		w.elements[directElement{false, second, key}] = secondOf(p.id)
		if served && !masquerade { // otherwise the table of the Services does
			w.elements[directElement{false, received, key}] = receiveOf(p.id)
		}
		return
	}
	for _, addr := range d.settings.NodePortIPs {
		same := plan.Key{Addr: addr, Port: k.Port, Protocol: k.Protocol}
		if _, taken := d.settings.Frontends[same]; !taken && model.FamilyOf(addr) == f.family {
			ingress(addr)
		}
	}
	w.elements[directElement{false, secondPorts, key}] = secondOf(p.id)
	if served {
		w.elements[directElement{false, recvPorts, key}] = receiveOf(p.id)
	}
}

// write writes the difference between what the kernel has and what it should have. rules is nil with want.
func (p *directPool) write(b *nft.Batch, f *directFamily, ingress *mirror, want *directProgram, rules *poolRules) {
	now := p.now
	if now == nil {
		if want == nil {
			return
		}
		sets := f.poolSets(p.id)
		b.AddSet(ingress.Table, sets[0])
		for _, s := range sets {
			b.AddSet(f.Table, s)
		}
		now = newDirectProgram()
	}
	if want == nil {
		p.redirect(b, f, ingress, now.elements, nil)
		ingress.removeChains(b, []string{passOf(p.id), errorOf(p.id)})
		f.removeChains(b, []string{secondOf(p.id), receiveOf(p.id), localOf(p.id)})
		sets := f.poolSets(p.id)
		b.DeleteSet(ingress.Table, sets[0].Name)
		for _, s := range sets {
			b.DeleteSet(f.Table, s.Name)
		}
		p.now = nil
		return
	}
	// What is no longer led here goes first, and what is new comes last.
	f.slots(b, ingress.Table, slotsOf(p.id), now.handed, want.handed)
	f.slots(b, f.Table, slotsOf(p.id), now.handed, want.handed)
	for c := range want.asked {
		f.slots(b, f.Table, askedOf(p.id, c), now.asked[c], want.asked[c])
	}
	var a arena
	for i := range want.own {
		e := nft.Element{Key: slotNumber(&a, i)}
		switch {
		case want.own[i] && !now.own[i]:
			b.AddElement(f.Table, ownOf(p.id), &e, 0)
		case now.own[i] && !want.own[i]:
			b.DeleteElement(f.Table, ownOf(p.id), &e, 0)
		}
	}
	p.locals(b, f.Table, now.local, want.local)
	ingress.setChains(b, rules.ingress())
	f.setChains(b, rules.chains())
	p.redirect(b, f, ingress, now.elements, want.elements)
	p.now = want
}

// redirect changes the elements that lead to the pool.
func (p *directPool) redirect(b *nft.Batch, f *directFamily, ingress *mirror, now, want map[directElement]string) {
	table := func(e directElement) *mirror {
		if e.ingress {
			return ingress
		}
		return f.mirror
	}
	for e := range now {
		if _, keep := want[e]; !keep {
			table(e).drop(b, e.set, e.key)
		}
	}
	for e, chain := range want {
		table(e).put(b, e.set, e.key, chain, true)
	}
}

// slots changes the elements of a map of nodes.
func (f *directFamily) slots(b *nft.Batch, t nft.Table, set string, now, want []nodeNumber) {
	var a arena
	for i := range want {
		if now[i] == want[i] {
			continue
		}
		key := slotNumber(&a, i)
		if now[i] != thisNode {
			b.DeleteElement(t, set, &nft.Element{Key: key}, 0)
		}
		if want[i] != thisNode {
			b.AddElement(t, set, &nft.Element{Key: key, Data: addressKey(&a.Arena, f.addrs[want[i]])}, 0)
		}
	}
}

func (p *directPool) locals(b *nft.Batch, t nft.Table, now, want []netip.AddrPort) {
	var a arena
	for i := range max(len(now), len(want)) {
		had, has := i < len(now) && now[i].IsValid(), i < len(want)
		if had && has && now[i] == want[i] {
			continue
		}
		key := slotNumber(&a, i)
		if had {
			b.DeleteElement(t, localOf(p.id), &nft.Element{Key: key}, 0)
		}
		if has {
			b.AddElement(t, localOf(p.id), &nft.Element{Key: key, Data: a.endpoint(want[i])}, 0)
		}
	}
}

func slotNumber(a *arena, i int) []byte {
	at := len(a.Arena)
	a.Word(uint32(i))
	return a.Cut(at)
}
