package nftables

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/nft"
	"sluice/internal/plan"
)

// batchElements bounds a transaction. The kernel holds its lock for as long as
// a transaction takes; at this size that is well below a tenth of a second.
const batchElements = 10_000

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

func (it *item) prepare(a *arena) {
	w := opWriter{arena: a}
	var want *programmed
	if it.new != nil {
		want = &it.new.programmed
	}
	w.difference(it.key, it.now, want)
	it.ops = w.ops
}

// round is one piece of writing: the tables' prologues, the items, the tables'
// epilogues, in as few transactions as the bound allows.
type round struct {
	d      *Dataplane
	tables []*table
	items  []*item
	result dataplane.Result
	// strict says that the kernel was read just now, so that a refusal is the
	// item's own fault.
	strict bool
}

// run writes the round. Frontends that the kernel refuses are left out and
// noted in the result.
func (r *round) run(ctx context.Context) {
	r.result.Err = r.write(ctx)
}

func (r *round) write(ctx context.Context) error {
	for r.moreThan(batchElements, (*members).missing) {
		if err := r.chunk(ctx, nil, true, false); err != nil {
			return err
		}
	}
	first := true
	for rest := r.items; first || len(rest) > 0; first = false {
		n := r.prepare(rest)
		if err := r.chunk(ctx, rest[:n], first, n == len(rest)); err != nil {
			return err
		}
		for _, it := range rest[:n] {
			it.ops = nil
		}
		rest = rest[n:]
	}
	for r.moreThan(0, (*members).surplus) {
		if err := r.chunk(ctx, nil, false, true); err != nil {
			return err
		}
	}
	return nil
}

// moreThan tells whether more than n addresses are missing or surplus.
func (r *round) moreThan(n int, which func(*members) iter.Seq[*member]) bool {
	for _, t := range r.tables {
		for _, m := range t.members() {
			for range which(m) {
				if n--; n < 0 {
					return true
				}
			}
		}
	}
	return false
}

// prepare works out the operations of as many items as fit one transaction,
// and tells how many those are.
func (r *round) prepare(items []*item) int {
	var a arena
	size := 0
	for n, it := range items {
		if it.ops == nil {
			it.prepare(&a)
		}
		if size += len(it.ops); size > batchElements && n > 0 {
			return n
		}
	}
	return len(items)
}

// chunk writes some items in one transaction, or one huge item in several.
func (r *round) chunk(ctx context.Context, items []*item, first, last bool) error {
	if len(items) == 1 && len(items[0].ops) > batchElements {
		return r.huge(ctx, items[0], first, last)
	}
	isolate := false
	for {
		b := &nft.Batch{Isolate: isolate}
		r.fill(b, items, first, last)
		err := r.commit(ctx, b)
		var refused *nft.Refused
		switch {
		case err == nil:
			r.done(items, first, last)
			return nil
		case !errors.As(err, &refused) || refused.Err != nil:
			return err
		case !isolate:
			// Elements of many frontends share a message: try again with
			// messages that name the culprit.
			isolate = true
			continue
		}
		kept, err := r.leaveOut(items, refused)
		if err != nil {
			return err
		}
		items = kept
	}
}

func (r *round) fill(b *nft.Batch, items []*item, first, last bool) {
	if first {
		for _, t := range r.tables {
			t.prologue(b, batchElements-b.Elements())
		}
	}
	writeItems(b, items)
	if last {
		for _, t := range r.tables {
			t.epilogue(b, max(batchElements-b.Elements(), 1))
		}
	}
}

// done takes over what a transaction did.
func (r *round) done(items []*item, first, last bool) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if first {
		for _, t := range r.tables {
			t.prologueDone()
		}
	}
	for _, it := range items {
		delete(r.d.refused, it.key)
		if it.new == nil {
			delete(it.table.frontends, it.key)
			continue
		}
		it.new.round = r.d.round
		it.table.frontends[it.key] = it.new
	}
	if last {
		for _, t := range r.tables {
			t.epilogueDone()
		}
	}
}

// leaveOut takes the refused items out and undoes what they asked for.
func (r *round) leaveOut(items []*item, refused *nft.Refused) ([]*item, error) {
	bad := map[int]error{}
	for _, m := range refused.Messages {
		if m.Owner == 0 {
			return nil, refused
		}
		bad[int(m.Owner)-1] = m.Err
	}
	var kept []*item
	for i, it := range items {
		err, refused := bad[i]
		if !refused {
			kept = append(kept, it)
			continue
		}
		r.fail(it, err)
	}
	return kept, nil
}

// fail notes that an item was refused, and undoes what it asked for. An element
// that is unexpectedly there or missing can be the item's own fault, or that of
// somebody who changed our table: then the kernel has to be read.
func (r *round) fail(it *item, err error) {
	if r.result.Failed == nil {
		r.result.Failed = map[plan.Key]error{}
	}
	r.result.Failed[it.key] = fmt.Errorf("the kernel refused %s: %w", it.key, err)
	it.table.exchange(it.new, it.old)
	_, known := r.d.refused[it.key]
	if r.strict {
		r.d.refused[it.key] = struct{}{}
	} else if !known && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST)) {
		r.d.watch.disturb()
	}
}

// huge writes an item that is too large for one transaction. Its operations are
// in an order in which they can be cut anywhere.
func (r *round) huge(ctx context.Context, it *item, first, last bool) error {
	rest := it.ops
	for len(rest) > 0 {
		n := min(len(rest), batchElements)
		part := &item{table: it.table, key: it.key, ops: rest[:n]}
		rest = rest[n:]
		b := &nft.Batch{}
		r.fill(b, []*item{part}, first, last && len(rest) == 0)
		if err := r.commit(ctx, b); err != nil {
			return fmt.Errorf("writing the %d elements of %s: %w", len(it.ops), it.key, err)
		}
		if first {
			r.done(nil, true, false)
		}
		first = false
	}
	r.done([]*item{it}, false, last)
	return nil
}

func (r *round) commit(ctx context.Context, b *nft.Batch) error {
	if b.Empty() {
		return nil
	}
	if err := r.d.commit(ctx, b); err != nil {
		return err
	}
	r.result.Transactions++
	r.result.Elements += b.Elements()
	return nil
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
