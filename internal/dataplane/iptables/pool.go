package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"sluice/internal/plan"
)

// pool is a list of endpoints that a service port's connections go to.
type pool struct {
	id        portID
	words     *wording
	endpoints []plan.Endpoint
	affinity  uint32
	// uses is how many rules would lead to it.
	uses int
	// chain is its own chain, "" if its rules stand where they are used.
	chain string
	keys  []plan.Key // frontends that use it
}

// endpoint is an endpoint as an entry of a tree.
type endpoint struct{ netip.AddrPort }

func (endpoint) weight() int { return 1 }

// rules is how many rules the endpoints take.
func (p *pool) rules() int {
	if p.affinity > 0 {
		return 2 * len(p.endpoints)
	}
	return len(p.endpoints)
}

// size is how many rules it takes to lead to the pool.
func (p *pool) size() int {
	if p.chain != "" {
		return 1
	}
	return p.rules()
}

// poolRules is up to how many rules a pool has one chain. It is more than
// chainRules, because the packets that come there are the pool's own.
const poolRules = 64

// big tells whether the pool needs more than one chain.
func (p *pool) big() bool { return p.rules() > poolRules }

// base is what all rules in the pool's chains begin with: a port can be
// translated only where the protocol is known.
func (p *pool) base() rule { return rule{protocol: protocolName(p.id.protocol)} }

// lead writes rules that take packets to the pool.
func (p *pool) lead(to *chainText, base rule) {
	if p.chain != "" {
		base.target = jump(p.chain)
		to.add(base)
		return
	}
	p.write(to, base)
}

// write writes the rules of all endpoints.
func (p *pool) write(to *chainText, base rule) {
	if p.affinity > 0 {
		for _, e := range p.endpoints {
			p.recall(to, base, endpoint{e.AddrPort})
		}
	}
	for i, e := range p.endpoints {
		p.choose(to, base, endpoint{e.AddrPort}, len(p.endpoints)-i)
	}
}

// choose writes the rule by which one of so many endpoints is chosen.
func (p *pool) choose(to *chainText, base rule, e endpoint, of int) {
	base.match += chance(1, of)
	if p.affinity > 0 {
		base.match += " -m recent --set" + p.clients(e)
	}
	base.target = dnat(e.AddrPort)
	to.add(base)
}

// recall writes the rule by which a client gets the endpoint that it had.
func (p *pool) recall(to *chainText, base rule, e endpoint) {
	base.match += " -m recent --update --seconds " + strconv.FormatUint(uint64(p.affinity), 10) + " --reap" + p.clients(e)
	base.target = dnat(e.AddrPort)
	to.add(base)
}

// clients names the list of clients that have an endpoint. The kernel keeps it
// while there is a rule with its name.
func (id portID) clients(e netip.AddrPort) string { return id.hashed(endpointPrefix, e.String()) }

func (p *pool) clients(e endpoint) string {
	return " --name " + p.id.clients(e.AddrPort) + " --mask " + p.words.recentMask + " --rsource"
}

// partName names the chains of a big pool.
func (p *pool) partName(what string, part prefix) string {
	if what == "" && part == whole {
		return p.chain
	}
	return hashed(poolPrefix, p.chain, what, string(part.first), fmt.Sprint(part.bits))
}

// bigPool is the trees of a pool with many endpoints. They outlive the pool
// they were made for, so that the next one can be made by difference.
type bigPool struct {
	pool  *pool
	trees []*tree // one to choose an endpoint, and one to recall it under affinity
}

func newBigPool(p *pool) *bigPool {
	b := &bigPool{pool: &pool{affinity: p.affinity}, trees: []*tree{newTree(choice{p}, poolRules)}}
	if p.affinity > 0 {
		b.trees = append(b.trees, newTree(recall{p}, poolRules))
	}
	b.set(p)
	return b
}

// fits tells whether the trees can be made those of a pool by difference.
func (b *bigPool) fits(p *pool) bool { return b != nil && b.pool.affinity == p.affinity }

// set makes the trees those of a pool.
func (b *bigPool) set(p *pool) {
	gone, come := b.pool.endpoints, p.endpoints
	b.pool = p
	for i, kind := range []treeKind{choice{p}, recall{p}}[:len(b.trees)] {
		b.trees[i].kind = kind
	}
	for len(gone) > 0 || len(come) > 0 {
		switch order := comparePools(gone, come); {
		case order < 0:
			for _, t := range b.trees {
				t.unset(endpointPlace(gone[0].AddrPort), endpoint{gone[0].AddrPort})
			}
			gone = gone[1:]
		case order > 0:
			for _, t := range b.trees {
				t.set(endpointPlace(come[0].AddrPort), endpoint{come[0].AddrPort})
			}
			come = come[1:]
		default:
			gone, come = gone[1:], come[1:]
		}
	}
}

// comparePools compares the first endpoints of two sorted lists; an empty one
// goes last.
func comparePools(a, b []plan.Endpoint) int {
	switch {
	case len(b) == 0:
		return -1
	case len(a) == 0:
		return 1
	}
	return a[0].AddrPort.Compare(b[0].AddrPort)
}

// layout writes the chains that changed.
func (b *bigPool) layout(out *chainTexts) {
	for _, t := range b.trees {
		t.layout(out)
	}
}

// chains are the names of all chains.
func (b *bigPool) chains() []string {
	var names []string
	for _, t := range b.trees {
		for p := range t.chains {
			names = append(names, t.kind.chainName(p))
		}
	}
	return names
}

func samePool(a, b []plan.Endpoint) bool {
	return slices.EqualFunc(a, b, func(x, y plan.Endpoint) bool { return x.AddrPort == y.AddrPort })
}
