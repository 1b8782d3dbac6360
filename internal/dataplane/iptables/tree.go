//go:build linux

package iptables

// A tree finds the rules for a packet in a number of steps that is logarithmic in the
// number of entries. It is a binary trie of keys, some parts of which are chains:
//
//   - a part is light if its rules fit into one chain, and heavy otherwise;
//   - each largest light part is a chain that holds its rules;
//   - each heavy part that starts beyond another multiple of stride bits than the
//     chain that it is in is a chain that leads to the chains below it.
//
// So the chains depend on the set of entries alone, not on their history, and an
// entry affects only the chains on the path to it and those beside it.
type tree struct {
	kind treeKind
	// limit is the maximum number of rules in a chain, unless it has a single entry.
	limit int
	root  *node
	// chains are those of the last layout.
	chains map[prefix]bool
	dirty  bool
}

// treeKind names a tree's chains and writes their rules.
type treeKind interface {
	chainName(prefix) string
	// leaf writes a chain with the rules of the entries.
	leaf(text *chainText, entries []*node)
	// inner writes a chain that leads to others.
	inner(text *chainText, parts []*node)
	// root writes the chain that the tree is entered by. It gets the entries if they
	// are light, and the parts if they are heavy.
	root(text *chainText, entries, parts []*node)
}

// entry is a leaf of a tree.
type entry interface {
	// weight is how many rules it has.
	weight() int
}

// sharer is an entry that is chosen at random, with a probability in relation to
// the shares of others. By default they are the same.
type sharer interface{ share() int }

// stride is how many bits are decided in one chain.
const stride = 2

// node is a part of a tree: all entries with a prefix.
type node struct {
	prefix prefix
	parts  [2]*node // nil for a single entry
	entry  entry    // of a single entry
	weight int
	share  int
	dirty  bool
}

func newTree(kind treeKind, limit int) *tree {
	return &tree{kind: kind, limit: limit, dirty: true}
}

// set adds an entry, and replaces another one with the key.
func (t *tree) set(key treeKey, e entry) {
	t.dirty = true
	n := &node{prefix: key.prefix(8 * len(key)), entry: e, weight: e.weight(), share: 1, dirty: true}
	if s, ok := e.(sharer); ok {
		n.share = s.share()
	}
	t.root = t.root.with(n)
}

// unset removes an entry, unless another one has the key by now.
func (t *tree) unset(key treeKey, e entry) {
	if n := t.root.find(key); n == nil || n.entry != e {
		return
	}
	t.dirty = true
	t.root = t.root.without(key)
}

func (n *node) find(key treeKey) *node {
	for n != nil && n.entry == nil && key.common(n.prefix.first) >= n.prefix.bits {
		n = n.parts[key.bit(n.prefix.bits)]
	}
	if n == nil || n.entry == nil || n.prefix.first != key {
		return nil
	}
	return n
}

func (n *node) with(leaf *node) *node {
	if n == nil {
		return leaf
	}
	key := leaf.prefix.first
	shared := min(key.common(n.prefix.first), n.prefix.bits)
	switch {
	case shared == leaf.prefix.bits:
		return leaf
	case shared < n.prefix.bits:
		parent := &node{prefix: key.prefix(shared)}
		parent.parts[key.bit(shared)] = leaf
		parent.parts[1-key.bit(shared)] = n
		return parent.sum()
	}
	side := key.bit(shared)
	n.parts[side] = n.parts[side].with(leaf)
	return n.sum()
}

// without removes the entry of a key that has one.
func (n *node) without(key treeKey) *node {
	if n.entry != nil {
		return nil
	}
	side := key.bit(n.prefix.bits)
	n.parts[side] = n.parts[side].without(key)
	if n.parts[side] == nil {
		return n.parts[1-side]
	}
	return n.sum()
}

func (n *node) sum() *node {
	n.weight = n.parts[0].weight + n.parts[1].weight
	n.share = n.parts[0].share + n.parts[1].share
	n.dirty = true
	return n
}

// heavy reports whether the part is too large for one chain. A single entry is one
// chain whatever its weight.
func (t *tree) heavy(n *node) bool { return n.weight > t.limit && n.entry == nil }

// entries appends the entries of the part, in order.
func (n *node) entries(list []*node) []*node {
	if n == nil {
		return list
	}
	n.dirty = false
	if n.entry != nil {
		return append(list, n)
	}
	return n.parts[1].entries(n.parts[0].entries(list))
}

// below appends the parts that are the next chains below a heavy one, up to that many
// bits.
func (t *tree) below(list []*node, n *node, until int) []*node {
	n.dirty = false
	for _, part := range n.parts {
		if t.heavy(part) && part.prefix.bits < until {
			list = t.below(list, part, until)
		} else {
			list = append(list, part)
		}
	}
	return list
}

// whole is the prefix of the chain that the tree is entered by.
var whole = prefix{bits: -1}

// layout writes the chains that changed since the last one, and says which are no longer
// needed.
func (t *tree) layout(out chainTexts) {
	if !t.dirty {
		return
	}
	t.dirty = false
	before := t.chains
	t.chains = map[prefix]bool{whole: true}
	var parts, entries []*node
	if n := t.root; n != nil && t.heavy(n) {
		if parts = []*node{n}; n.prefix.bits < stride {
			parts = t.below(nil, n, stride)
		}
	} else {
		entries = n.entries(nil)
	}
	t.kind.root(out.begin(t.kind.chainName(whole)), entries, parts)
	t.write(out, parts, before)
	for p := range before {
		if !t.chains[p] {
			out[t.kind.chainName(p)] = nil
		}
	}
}

// write writes the chains of parts, and all below, that changed or were not there before.
func (t *tree) write(out chainTexts, parts []*node, before map[prefix]bool) {
	for _, n := range parts {
		t.chains[n.prefix] = true
		changed := n.dirty || !before[n.prefix]
		switch {
		case t.heavy(n):
			below := t.below(nil, n, (n.prefix.bits/stride+1)*stride)
			if changed {
				t.kind.inner(out.begin(t.kind.chainName(n.prefix)), below)
			}
			t.write(out, below, before)
		case changed:
			t.kind.leaf(out.begin(t.kind.chainName(n.prefix)), n.entries(nil))
		}
	}
}
