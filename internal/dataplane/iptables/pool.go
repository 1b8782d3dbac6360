//go:build linux

package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"sluice/internal/plan"
)

// pool is a list of endpoints that connections of a service port go to.
type pool struct {
	id        portID
	words     *wording
	endpoints []plan.Endpoint
	affinity  uint32
	// uses is how many rules lead to it.
	uses int
	// chain is its own chain, "" if its rules are repeated where they are used.
	chain string
	keys  []plan.Key // frontends that use it
}

// endpoint is an endpoint as an entry of a tree.
type endpoint struct {
	netip.AddrPort
	chances int // of being chosen, in relation to other endpoints
}

func entryOf(e plan.Endpoint) endpoint { return endpoint{e.AddrPort, max(1, int(e.Weight))} }

func (endpoint) weight() int  { return 1 }
func (e endpoint) share() int { return e.chances }

func (p *pool) rules() int {
	if p.affinity > 0 {
		return 2 * len(p.endpoints)
	}
	return len(p.endpoints)
}

// size is how many rules lead writes.
func (p *pool) size() int {
	if p.chain != "" {
		return 1
	}
	return p.rules()
}

// poolRules is up to how many rules a pool has a single chain. It is more than
// chainRules, because only packets for the pool get there.
const poolRules = 64

// big reports whether the pool needs more than one chain.
func (p *pool) big() bool { return p.rules() > poolRules }

// base is the start of all rules in the pool's chains: a port can be translated only
// if the protocol is known.
func (p *pool) base() rule { return rule{protocol: protocolName(p.id.protocol)} }

// jump writes rules that take packets to the pool.
func (p *pool) jump(text *chainText, base rule) {
	if p.chain != "" {
		base.target = jump(p.chain)
		text.add(base)
		return
	}
	p.write(text, base)
}

// write writes the rules of all endpoints.
func (p *pool) write(text *chainText, base rule) {
	left := 0
	for _, e := range p.endpoints {
		if p.affinity > 0 {
			p.recall(text, base, entryOf(e))
		}
		left += entryOf(e).share()
	}
	for _, e := range p.endpoints {
		p.choose(text, base, entryOf(e), left)
		left -= entryOf(e).share()
	}
}

// writeChains writes the pool's own chains: one, or if it is large a tree to choose an
// endpoint, and another to recall it.
func (p *pool) writeChains(out chainTexts) {
	if !p.big() {
		text := out.begin(p.chain)
		text.own, text.comment = p.keys, p.id.String()
		p.write(text, p.base())
		return
	}
	kinds := []treeKind{choice{p}}
	if p.affinity > 0 {
		kinds = append(kinds, recall{p})
	}
	keys, entries := make([]treeKey, len(p.endpoints)), make([]endpoint, len(p.endpoints))
	for i, e := range p.endpoints {
		keys[i], entries[i] = endpointKey(e.AddrPort), entryOf(e)
	}
	for _, kind := range kinds {
		t := newTree(kind, poolRules)
		for i := range entries {
			t.set(keys[i], &entries[i])
		}
		t.layout(out)
	}
}

// choose writes the rule that chooses an endpoint, among all that have so large a
// share together.
func (p *pool) choose(text *chainText, base rule, e endpoint, of int) {
	base.match += chance(e.share(), of)
	if p.affinity > 0 {
		base.match += " -m recent --set" + p.clients(e)
	}
	base.target = dnat(e.AddrPort)
	text.add(base)
}

// recall writes the rule that sends a client to the endpoint it had before.
func (p *pool) recall(text *chainText, base rule, e endpoint) {
	base.match += " -m recent --update --seconds " + strconv.FormatUint(uint64(p.affinity), 10) + " --reap" + p.clients(e)
	base.target = dnat(e.AddrPort)
	text.add(base)
}

// clients are the options of the match recent for the clients of an endpoint.
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

func samePool(a, b []plan.Endpoint) bool {
	return slices.EqualFunc(a, b, func(x, y plan.Endpoint) bool { return entryOf(x) == entryOf(y) })
}

// choice is the kind of tree that chooses one of many endpoints at random.
type choice struct{ *pool }

func (c choice) chainName(p prefix) string { return c.partName("", p) }

func (c choice) leaf(text *chainText, entries []*node) {
	text.own = c.keys
	text.grow(len(entries))
	left := shareOf(entries)
	for _, n := range entries {
		c.choose(text, c.base(), *n.entry.(*endpoint), left)
		left -= n.share
	}
}

func (c choice) inner(text *chainText, parts []*node) {
	text.own = c.keys
	left := shareOf(parts)
	for _, n := range parts {
		text.add(rule{match: chance(n.share, left), target: leave(c.chainName(n.prefix))})
		left -= n.share
	}
}

func shareOf(nodes []*node) (sum int) {
	for _, n := range nodes {
		sum += n.share
	}
	return sum
}

func (c choice) root(text *chainText, entries, parts []*node) {
	if c.affinity > 0 {
		text.add(rule{target: jump(c.partName(recallPart, whole))})
	}
	c.leaf(text, entries)
	c.inner(text, parts)
}

// recall is the kind of tree that finds the endpoint of a client's last connection,
// by testing each endpoint in turn.
type recall struct{ *pool }

const recallPart = "recall"

func (r recall) chainName(p prefix) string { return r.partName(recallPart, p) }

func (r recall) leaf(text *chainText, entries []*node) {
	text.own = r.keys
	text.grow(len(entries))
	for _, n := range entries {
		r.recall(text, r.base(), *n.entry.(*endpoint))
	}
}

func (r recall) inner(text *chainText, parts []*node) {
	for _, n := range parts {
		text.add(rule{target: jump(r.chainName(n.prefix))})
	}
}

func (r recall) root(text *chainText, entries, parts []*node) {
	r.leaf(text, entries)
	r.inner(text, parts)
}
