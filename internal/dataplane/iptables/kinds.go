package iptables

// dispatch is the kind of tree that finds the rules for a packet by where it
// goes to.
type dispatch struct {
	enter       string // the chain that the tree is entered by
	begin       string // what the names of its other chains begin with
	addressBits int
	tail        []rule // behind those of the tree
}

// written is an entry that writes its own rules.
type written interface {
	entry
	write(*chainText)
}

func (d *dispatch) chainName(p prefix) string {
	if p == whole {
		return d.enter
	}
	return p.chainName(d.begin, d.addressBits)
}

func (d *dispatch) leaf(p *chainText, entries []*node) {
	for _, n := range entries {
		n.entry.(written).write(p)
		p.comment = ""
	}
}

func (d *dispatch) inner(p *chainText, parts []*node) { d.lead(p, parts, leave) }

// root leads to chains that come back, because the tail is for everybody.
func (d *dispatch) root(p *chainText, entries, parts []*node) {
	d.leaf(p, entries)
	d.lead(p, parts, jump)
	for _, r := range d.tail {
		p.own()
		p.add(r)
	}
}

func (d *dispatch) lead(p *chainText, parts []*node, how func(string) string) {
	for _, n := range parts {
		e := n.prefix.extent(d.addressBits)
		r := rule{destination: e.address, protocol: e.protocol}
		if e.protocol != "" && !e.allPorts() {
			r.port, r.last = e.from, e.to
		}
		r.target = how(d.chainName(n.prefix))
		if !n.prefix.exact(d.addressBits) {
			// It takes more packets than the chain knows, and those must go on.
			r.target = jump(d.chainName(n.prefix))
		}
		p.add(r)
	}
}

// choice is the kind of tree that chooses one of many endpoints.
type choice struct {
	*pool
}

func (c choice) chainName(p prefix) string { return c.partName("", p) }

func (c choice) leaf(p *chainText, entries []*node) {
	p.own(c.keys...)
	for i, n := range entries {
		c.choose(p, c.base(), n.entry.(endpoint), len(entries)-i)
	}
}

func (c choice) inner(p *chainText, parts []*node) {
	p.own(c.keys...)
	left := 0
	for _, n := range parts {
		left += n.count
	}
	for _, n := range parts {
		p.add(rule{match: chance(n.count, left), target: leave(c.chainName(n.prefix))})
		left -= n.count
	}
}

func (c choice) root(p *chainText, entries, parts []*node) {
	if c.affinity > 0 {
		p.add(rule{target: jump(c.partName(recallPart, whole))})
	}
	c.leaf(p, entries)
	c.inner(p, parts)
}

// recall is the kind of tree that finds the endpoint a client had before. It
// asks for each endpoint in turn.
type recall struct {
	*pool
}

const recallPart = "recall"

func (r recall) chainName(p prefix) string { return r.partName(recallPart, p) }

func (r recall) leaf(p *chainText, entries []*node) {
	p.own(r.keys...)
	for _, n := range entries {
		r.recall(p, r.base(), n.entry.(endpoint))
	}
}

func (r recall) inner(p *chainText, parts []*node) {
	for _, n := range parts {
		p.add(rule{target: jump(r.chainName(n.prefix))})
	}
}

func (r recall) root(p *chainText, entries, parts []*node) {
	r.leaf(p, entries)
	r.inner(p, parts)
}
