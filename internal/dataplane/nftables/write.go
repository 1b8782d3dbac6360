package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/nft"
	"sluice/internal/plan"
	"sluice/internal/prefetch"
)

// batchElements bounds a transaction. The kernel holds its lock for as long as
// a transaction takes; at this size that is well below a tenth of a second.
const batchElements = 10_000

// What a transaction takes at most, in bytes: an operation on an element, which may be
// to replace it, in messages of its own; and all that a transaction can have besides.
const (
	operationBytes = 400
	restBytes      = 64 << 10
	leastElements  = 100
)

// boundFor is how many elements a transaction may have where the kernel takes that
// many bytes.
func boundFor(bytes int) int {
	return max(min(batchElements, (bytes-restBytes)/operationBytes), leastElements)
}

// round is one piece of writing: the tables' prologues, the items, the tables'
// epilogues, in as few transactions as the bound allows.
type round struct {
	d      *Dataplane
	tables []*table
	items  []*item
	// written counts the items that are done.
	written int
	result  dataplane.Result
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
	lots, first := r.lots(false), true
	if sizeOf(r.items) > r.d.bound || r.more((*table).missing, r.d.bound) {
		// The next transaction is encoded while the kernel is busy with one.
		lots = prefetch.Seq(r.lots(true))
		for ; first || r.more((*table).missing, 0); first = false {
			if err := r.send(ctx, &lot{}, true, false); err != nil {
				return err
			}
		}
	}
	for l := range lots {
		if err := r.send(ctx, l, first, l.last); err != nil {
			return err
		}
		first = false
	}
	for r.more((*table).surplus, 0) {
		if err := r.send(ctx, &lot{}, false, true); err != nil {
			return err
		}
	}
	return nil
}

// more reports whether more than n is missing or surplus.
func (r *round) more(which func(*table, int) int, n int) bool {
	for _, t := range r.tables {
		if n -= which(t, n+1); n < 0 {
			return true
		}
	}
	return false
}

// size estimates how many elements the round will write, as far as that matters.
func (r *round) size() int {
	n := sizeOf(r.items)
	for _, t := range r.tables {
		n += t.missing(manyElements) + t.surplus(manyElements)
	}
	return n
}

// send writes a lot.
func (r *round) send(ctx context.Context, l *lot, first, last bool) error {
	defer forgetOps(l.items)
	if l.huge {
		return r.huge(ctx, l.items[0], first, last)
	}
	items, b := l.items, l.batch
	for isolate := false; ; {
		if b == nil {
			b = &nft.Batch{Isolate: isolate}
			r.fill(b, items, first)
		}
		r.close(b, last)
		err := r.commit(ctx, b)
		b = nil
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
			prepareAll(items)
			continue
		}
		if items, err = r.leaveOut(items, refused); err != nil {
			return err
		}
	}
}

// fill writes items, after the prologue if they are the first.
func (r *round) fill(b *nft.Batch, items []*item, first bool) {
	if first {
		for _, t := range r.tables {
			t.prologue(b, r.d.bound-b.Elements())
		}
	}
	writeItems(b, items)
}

// close writes the epilogue if nothing follows.
func (r *round) close(b *nft.Batch, last bool) {
	if last {
		for _, t := range r.tables {
			t.epilogue(b, max(r.d.bound-b.Elements(), 1))
		}
	}
}

// done takes over what a transaction did.
func (r *round) done(items []*item, first, last bool) {
	r.d.commits.Lock()
	defer r.d.commits.Unlock()
	if first {
		for _, t := range r.tables {
			t.prologueDone()
		}
	}
	r.written += len(items)
	for _, it := range items {
		delete(r.d.refused, it.key)
		r.d.bank(it)
		if it.new == nil {
			delete(it.table.frontends, it.key)
			continue
		}
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
		r.d.watch.suspect(func(s *suspects) { s.addOps(it.table.nf, it.ops) })
	}
}

// huge writes an item that is too large for one transaction. Its operations are
// in an order in which they can be cut anywhere.
func (r *round) huge(ctx context.Context, it *item, first, last bool) error {
	rest := it.ops
	for len(rest) > 0 {
		n := min(len(rest), r.d.bound)
		part := &item{table: it.table, key: it.key, ops: rest[:n]}
		rest = rest[n:]
		b := &nft.Batch{}
		r.fill(b, []*item{part}, first)
		r.close(b, last && len(rest) == 0)
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
	if r.d.progress != nil {
		r.d.progress(dataplane.Progress{Done: r.written, Total: len(r.items), Transactions: r.result.Transactions})
	}
	return nil
}
