package nftables

import (
	"iter"

	"sluice/internal/nft"
	"sluice/internal/plan"
)

// item is the change of one frontend.
type item struct {
	table *table
	key   plan.Key
	// now is what the kernel holds, nil for nothing. It belongs to old, or was
	// read from the kernel.
	now      *programmed
	old, new *frontend // nil for none
	ops      []op
}

func (it *item) prepare(w *opWriter) {
	var want *programmed
	if it.new != nil {
		want = &it.new.programmed
	}
	from := len(w.ops)
	w.difference(it.key, it.now, want)
	it.ops = w.ops[from:len(w.ops):len(w.ops)]
}

// lot is the items of one transaction, or one huge item for several.
type lot struct {
	items []*item
	batch *nft.Batch // what the items write; nil if it is not encoded
	huge  bool
	last  bool
}

// lots cuts the items into as many as fit one transaction each, and encodes them
// if that is wanted. There is one also without items.
func (r *round) lots(encode bool) iter.Seq[*lot] {
	return func(yield func(*lot) bool) {
		w := newOpWriter()
		for rest, more := r.items, true; more; {
			l := r.cut(rest, w)
			if encode && !l.huge {
				l.batch = &nft.Batch{Expect: r.d.bound}
				writeItems(l.batch, l.items)
				forgetOps(l.items)
				w.reset()
			} else {
				w = newOpWriter()
			}
			if rest, more = rest[len(l.items):], !l.last; !yield(l) {
				return
			}
		}
	}
}

// cut works out the operations of as many items as fit one transaction.
func (r *round) cut(items []*item, w *opWriter) *lot {
	n, size := 0, 0
	for ; n < len(items); n++ {
		it := items[n]
		it.prepare(w)
		if n > 0 && size+len(it.ops) > r.d.bound {
			it.ops = nil
			break
		}
		size += len(it.ops)
	}
	return &lot{items: items[:n], huge: n == 1 && size > r.d.bound, last: n == len(items)}
}

// prepareAll works the operations out again, which an encoded lot has not kept.
func prepareAll(items []*item) {
	w := newOpWriter()
	for _, it := range items {
		it.prepare(w)
	}
}

func forgetOps(items []*item) {
	for _, it := range items {
		it.ops = nil
	}
}

// writeItems writes the operations of all items set by set, so that elements
// share messages: first all removals, then all additions, which together take
// effect at once.
func writeItems(b *nft.Batch, items []*item) {
	type place struct {
		table *table
		set   string
	}
	type ref struct {
		op    *op
		owner nft.Owner
	}
	var order []place
	byPlace := map[place][]ref{}
	for i, it := range items {
		for j := range it.ops {
			o := &it.ops[j]
			p := place{it.table, o.set}
			refs, ok := byPlace[p]
			if !ok {
				order = append(order, p)
			}
			byPlace[p] = append(refs, ref{o, nft.Owner(i + 1)})
		}
	}
	for _, p := range order {
		for _, r := range byPlace[p] {
			if r.op.remove {
				b.DeleteElement(p.table.Table, p.set, &r.op.element, r.owner)
			}
		}
	}
	for _, p := range order {
		for _, r := range byPlace[p] {
			if r.op.add {
				b.AddElement(p.table.Table, p.set, &r.op.element, r.owner)
			}
		}
	}
}
