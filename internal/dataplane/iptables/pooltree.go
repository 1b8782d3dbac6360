package iptables

// choice is the kind of tree that chooses one of many endpoints at random.
type choice struct{ *pool }

func (c choice) chainName(p prefix) string { return c.partName("", p) }

func (c choice) leaf(text *chainText, entries []*node) {
	text.own = c.keys
	left := shareOf(entries)
	for _, n := range entries {
		c.choose(text, c.base(), n.entry.(endpoint), left)
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
