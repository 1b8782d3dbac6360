//go:build linux

package nftables

import (
	"iter"

	"sluice/internal/kernel/nft"
)

// chunk is the items of one transaction, or a huge item for several.
type chunk struct {
	items []*item
	batch *nft.Batch // encoded items, nil if they are not encoded yet
	huge  bool
	last  bool
}

// chunks cuts the items into chunks, at least one, and encodes them if encode is set.
func (c *commit) chunks(encode bool) iter.Seq[*chunk] {
	return func(yield func(*chunk) bool) {
		w := newOpWriter()
		for rest, more := c.items, true; more; {
			ch := c.nextChunk(rest, w)
			if encode && !ch.huge {
				ch.batch = &nft.Batch{Expect: c.d.bound}
				writeItems(ch.batch, ch.items)
				forgetOps(ch.items)
				w.reset()
			} else {
				w = newOpWriter()
			}
			if rest, more = rest[len(ch.items):], !ch.last; !yield(ch) {
				return
			}
		}
	}
}

// nextChunk computes the operations of as many items as fit into a transaction.
func (c *commit) nextChunk(items []*item, w *opWriter) *chunk {
	n, size := 0, 0
	for ; n < len(items); n++ {
		it := items[n]
		it.prepare(w)
		if n > 0 && size+len(it.ops) > c.d.bound {
			it.ops = nil
			break
		}
		size += len(it.ops)
	}
	return &chunk{items: items[:n], huge: n == 1 && size > c.d.bound, last: n == len(items)}
}

// writeItems writes the operations of all items set by set, so that elements share
// messages: first all removals, then all additions, which together take effect
// atomically.
func writeItems(b *nft.Batch, items []*item) {
	type target struct {
		table *table
		set   string
	}
	type ref struct {
		op    *op
		owner nft.Owner
	}
	var order []target
	byTarget := map[target][]ref{}
	for i, it := range items {
		for j := range it.ops {
			o := &it.ops[j]
			t := target{it.table, o.set}
			refs, ok := byTarget[t]
			if !ok {
				order = append(order, t)
			}
			byTarget[t] = append(refs, ref{o, nft.Owner(i + 1)})
		}
	}
	for _, t := range order {
		for _, r := range byTarget[t] {
			if r.op.remove {
				b.DeleteElement(t.table.Table, t.set, &r.op.element, r.owner)
			}
		}
	}
	for _, t := range order {
		for _, r := range byTarget[t] {
			if r.op.add {
				b.AddElement(t.table.Table, t.set, &r.op.element, r.owner)
			}
		}
	}
}
