//go:build linux

package nftables

import (
	"net/netip"
	"time"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// directPool is the frontends of a service port in one family, which share a lookup table, and what the kernel has
// of them alone.
type directPool struct {
	id        affinityID
	protocol  model.Protocol
	frontends map[plan.Key]*plan.Frontend
	lookup    *directLookup
	handover  *handover // nil if it has none yet
	// begins is when packets begin to be handed on; zero if they are.
	begins time.Time

	// What the kernel has: the slots of endpoints that connections are led to here, if it has that map at all; and
	// the elements that lead packets to the chains.
	served   bool
	local    []netip.AddrPort
	elements map[directElement]string
}

// directElement is one of the elements that lead to a pool's chains.
type directElement struct {
	ingress  bool // of the table of family netdev
	set, key string
}

// begin reports whether it is time to begin to hand on packets.
func (p *directPool) begin(now time.Time) bool {
	if p.begins.IsZero() || now.Before(p.begins) {
		return false
	}
	p.begins = time.Time{}
	return true
}

// direct is what the frontends have in common.
func (p *directPool) direct() (of *plan.Direct) {
	for _, fe := range p.frontends {
		of = fe.Direct
	}
	return of
}

func (p *directPool) kind() handoverKind {
	begins := !p.begins.IsZero()
	return handoverKind{protocol: p.protocol, byAddress: !begins && p.direct().ByAddress, begins: begins}
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

// poolProgram is what the kernel should have of a pool.
type poolProgram struct {
	rules    *poolRules
	local    []netip.AddrPort
	elements map[directElement]string
}

// want returns what the kernel should have of the pool.
func (p *directPool) want(f *directFamily, d *directState) *poolProgram {
	w := &poolProgram{elements: map[directElement]string{}}
	w.rules = &poolRules{layout: f.layout, id: p.id, protocol: p.protocol, byAddress: p.direct().ByAddress,
		own: p.handover.table.id}
	route, masquerade := p.route()
	if route != nil {
		if w.local = route.Slots(); anySlot(route) {
			w.local = assignSlots(p.local, route.Endpoints)
		}
		w.rules.locals = len(w.local)
		switch {
		case route.ByClient():
			w.rules.choice = byClient
		case route.Algorithm == model.RoundRobin:
			w.rules.choice = inTurn
		}
		if masquerade {
			w.rules.mark = d.settings.MasqueradeMark
		}
	}
	for k := range p.frontends {
		p.lead(w, f, d, k, masquerade)
	}
	return w
}

// lead adds the elements of a frontend.
func (p *directPool) lead(w *poolProgram, f *directFamily, d *directState, k plan.Key, masquerade bool) {
	var a arena
	name, served := p.handover.name(), w.rules.locals > 0
	ingress := func(addr netip.Addr) {
		if p.handover.begins {
			return
		}
		key := string(a.frontendKey(plan.Key{Addr: addr, Port: k.Port, Protocol: k.Protocol}))
		w.elements[directElement{true, ingressFrontends(f.family), key}] = passOf(name)
		w.elements[directElement{true, ingressErrors(f.family), key}] = errorOf(name)
	}
	key := string(a.frontendKey(k))
	if !k.NodePort() {
		ingress(k.Addr)
		w.elements[directElement{false, second, key}] = secondOf(name)
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
	w.elements[directElement{false, secondPorts, key}] = secondOf(name)
	if served {
		w.elements[directElement{false, recvPorts, key}] = receiveOf(p.id)
	}
}

// write writes the difference between what the kernel has and what it should have, besides elements that it should
// not have any more.
func (p *directPool) write(b *nft.Batch, f *directFamily, ingress *mirror, want *poolProgram) {
	if serves := want.rules.locals > 0; serves {
		if !p.served {
			b.AddSet(f.Table, f.localSet(p.id))
		}
		p.locals(b, f.Table, want.local)
		f.setChains(b, want.rules.chains())
	} else {
		p.unserve(b, f)
	}
	p.local, p.served = want.local, want.rules.locals > 0
	for e, chain := range want.elements {
		f.of(e, ingress).put(b, e.set, e.key, chain, true)
	}
	p.elements = want.elements
}

// unserve removes the chains that lead to endpoints here, if there are any.
func (p *directPool) unserve(b *nft.Batch, f *directFamily) {
	if p.served {
		f.removeChains(b, []string{localOf(p.id), receiveOf(p.id)})
		b.DeleteSet(f.Table, localOf(p.id))
		p.served, p.local = false, nil
	}
}

// mislead removes elements that are no longer wanted. Those of all pools go before any other comes: it may be one that
// another pool had.
func (p *directPool) mislead(b *nft.Batch, f *directFamily, ingress *mirror, want map[directElement]string) {
	for e := range p.elements {
		if _, keep := want[e]; !keep {
			f.of(e, ingress).drop(b, e.set, e.key)
		}
	}
}

// of returns the table of an element.
func (f *directFamily) of(e directElement, ingress *mirror) *mirror {
	if e.ingress {
		return ingress
	}
	return f.mirror
}

func (p *directPool) locals(b *nft.Batch, t nft.Table, want []netip.AddrPort) {
	var a arena
	for i := range max(len(p.local), len(want)) {
		had, has := i < len(p.local) && p.local[i].IsValid(), i < len(want)
		if had && has && p.local[i] == want[i] {
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
