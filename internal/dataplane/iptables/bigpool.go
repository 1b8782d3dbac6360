package iptables

import "sluice/internal/plan"

// bigPool is the trees of a pool with many endpoints. They are reused for the next
// version of the pool, which is made by difference.
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

// fits reports whether the trees can be made those of a pool by difference.
func (b *bigPool) fits(p *pool) bool { return b != nil && b.pool.affinity == p.affinity }

// set makes the trees those of a pool.
func (b *bigPool) set(p *pool) {
	old := b.pool.endpoints
	b.pool = p
	for i, kind := range []treeKind{choice{p}, recall{p}}[:len(b.trees)] {
		b.trees[i].kind = kind
	}
	for gone, come := range plan.MergeEndpoints(old, p.endpoints) {
		for _, t := range b.trees {
			switch {
			case come == nil:
				t.unset(endpointKey(gone.AddrPort), entryOf(*gone))
			case gone == nil || entryOf(*gone) != entryOf(*come):
				t.set(endpointKey(come.AddrPort), entryOf(*come))
			}
		}
	}
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

// choice is the kind of tree that chooses one of many endpoints at random.
type choice struct {
	*pool
}

func (c choice) chainName(p prefix) string { return c.partName("", p) }

func (c choice) leaf(text *chainText, entries []*node) {
	text.own(c.keys...)
	left := shareOf(entries)
	for _, n := range entries {
		c.choose(text, c.base(), n.entry.(endpoint), left)
		left -= n.share
	}
}

func (c choice) inner(text *chainText, parts []*node) {
	text.own(c.keys...)
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
type recall struct {
	*pool
}

const recallPart = "recall"

func (r recall) chainName(p prefix) string { return r.partName(recallPart, p) }

func (r recall) leaf(text *chainText, entries []*node) {
	text.own(r.keys...)
	for _, n := range entries {
		r.recall(text, r.base(), n.entry.(endpoint))
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
