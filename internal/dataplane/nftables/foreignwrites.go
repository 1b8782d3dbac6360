//go:build linux

package nftables

import (
	"errors"

	"sluice/internal/kernel/nft"
)

// foreignWrites are objects of our tables that other programs changed, or may have
// changed. Repair reads and repairs them, with work proportional to their number.
type foreignWrites struct {
	// structure says that a table, chain, rule or set as such was changed.
	structure bool
	elements  map[elementID]struct{}
	// tooMany says that it is faster to compare everything.
	tooMany bool
}

// elementID identifies an element of a set, present or not.
type elementID struct {
	family   nft.Family
	set, key string
}

// element is one with the key only.
func (id elementID) element() nft.Element { return nft.Element{Key: []byte(id.key)} }

// maxForeign is up to how many elements are repaired one by one.
const maxForeign = 20_000

// errTooMany is why Repair leaves it to Reconcile.
var errTooMany = errors.New("other programs changed too many elements to repair each")

func (w *foreignWrites) empty() bool { return !w.structure && !w.tooMany && len(w.elements) == 0 }

func (w *foreignWrites) addNotice(n nft.Notice) {
	if n.Set == "" {
		w.structure = true
	}
	for i := range n.Elements {
		w.add(n.Family, n.Set, &n.Elements[i])
	}
}

func (w *foreignWrites) add(f nft.Family, set string, e *nft.Element) {
	if w.tooMany {
		return
	}
	if w.elements == nil {
		w.elements = map[elementID]struct{}{}
	}
	w.elements[elementID{f, set, string(e.Key)}] = struct{}{}
	if len(w.elements) > maxForeign {
		w.tooMany, w.elements = true, nil
	}
}

// addOps adds the elements of operations.
func (w *foreignWrites) addOps(f nft.Family, ops []op) {
	for i := range ops {
		w.add(f, ops[i].set, &ops[i].element)
	}
}

// join adds other foreign writes.
func (w *foreignWrites) join(o *foreignWrites) {
	w.structure, w.tooMany = w.structure || o.structure, w.tooMany || o.tooMany
	for id := range o.elements {
		key := id.element()
		w.add(id.family, id.set, &key)
	}
}
