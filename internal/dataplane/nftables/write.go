//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"sluice/internal/base/prefetch"
	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
)

// A commit writes three parts, in this order:
//
//   - the prologue of each table: chains and shared elements that elements of
//     frontends refer to,
//   - the items: the elements of frontends,
//   - the epilogue of each table: base chains, which let packets in, and the removal
//     of all that nothing refers to any more.
//
// Mostly this is one transaction. A large commit is cut into several, because the
// kernel limits the size of one, and holds a lock while it applies one. It can be cut
// anywhere: packets do not reach what nothing refers to, so it does not matter how much
// of the prologue or epilogue is written; each item takes effect atomically; and the
// operations of an item that is too large for one transaction are in an order in which
// each of them leaves a working frontend.

// transaction is a chunk of the items, with or without prologue and epilogue. These
// write as much as there is room for, so one may be needed several times.
type transaction struct {
	chunk
	prologue, epilogue bool
}

// transactions yields the transactions of the commit. Which one is next depends on
// what was written, so each must take effect before the next is asked for.
func (c *commit) transactions() iter.Seq[*transaction] {
	return func(yield func(*transaction) bool) {
		chunks, prologue := c.chunks(false), true
		if sizeOf(c.items) > c.d.bound || c.anyTable((*table).missing, c.d.bound) || c.replaces() {
			for prologue || c.anyTable((*table).missing, 0) {
				if prologue = false; !yield(&transaction{prologue: true}) {
					return
				}
			}
			// The next chunk is encoded while the kernel applies one.
			chunks = prefetch.Seq(c.chunks(true))
		}
		for ch := range chunks {
			if !yield(&transaction{chunk: *ch, prologue: prologue, epilogue: ch.last}) {
				return
			}
			prologue = false
		}
		for c.anyTable((*table).surplus, 0) {
			if !yield(&transaction{epilogue: true}) {
				return
			}
		}
	}
}

// anyTable reports whether the tables have more than n of something together.
func (c *commit) anyTable(count func(t *table, limit int) int, n int) bool {
	for _, t := range c.tables {
		if n -= count(t, n+1); n < 0 {
			return true
		}
	}
	return false
}

func (c *commit) write(ctx context.Context) error {
	for t := range c.transactions() {
		if t.epilogue {
			c.inheritClients(ctx)
		}
		write := c.writeTransaction
		if t.huge {
			write = c.writeHuge
		}
		items := t.items // refused ones are left out
		err := write(ctx, t)
		if forgetOps(items); err != nil {
			return err
		}
	}
	return nil
}

// writeTransaction writes a transaction, without the items that the kernel refuses.
func (c *commit) writeTransaction(ctx context.Context, t *transaction) error {
	for isolate := false; ; {
		b := t.batch
		if t.batch = nil; b == nil {
			b = &nft.Batch{Isolate: isolate}
			c.begin(b, t)
			writeItems(b, t.items)
		}
		c.finish(b, t)
		err := c.send(ctx, b)
		var refused *nft.Refused
		switch {
		case err == nil:
			c.done(t)
			return nil
		case !errors.As(err, &refused) || refused.Err != nil:
			return err
		case !isolate:
			// Elements of many frontends share a message: try again with messages
			// that show whose element is refused.
			isolate = true
			prepareAll(t.items)
			continue
		}
		if t.items, err = c.leaveOut(t.items, refused); err != nil {
			return err
		}
	}
}

// begin writes the prologue, if it is part of the transaction.
func (c *commit) begin(b *nft.Batch, t *transaction) {
	if t.prologue {
		for _, table := range c.tables {
			table.prologue(b, c.d.bound-b.Elements())
		}
	}
}

// finish writes the epilogue, if it is part of the transaction.
func (c *commit) finish(b *nft.Batch, t *transaction) {
	if t.epilogue {
		for _, table := range c.tables {
			table.epilogue(b, max(c.d.bound-b.Elements(), 1))
		}
	}
}

// writeHuge writes an item that is too large for one transaction.
func (c *commit) writeHuge(ctx context.Context, t *transaction) error {
	it := t.items[0]
	for rest := it.ops; len(rest) > 0; {
		n := min(len(rest), c.d.bound)
		part := &item{table: it.table, key: it.key, ops: rest[:n]}
		rest = rest[n:]
		b := &nft.Batch{}
		c.begin(b, t)
		writeItems(b, []*item{part})
		if len(rest) == 0 {
			c.finish(b, t)
		}
		if err := c.send(ctx, b); err != nil {
			return fmt.Errorf("writing the %d elements of %s: %w", len(it.ops), it.key, err)
		}
		if t.prologue {
			c.done(&transaction{prologue: true})
			t.prologue = false
		}
	}
	c.done(t)
	return nil
}

// send commits a batch unless it is empty.
func (c *commit) send(ctx context.Context, b *nft.Batch) error {
	if b.Empty() {
		return nil
	}
	if err := c.d.commit(ctx, b); err != nil {
		return err
	}
	c.result.Transactions++
	c.result.Elements += b.Elements()
	if c.d.progress != nil {
		c.d.progress(dataplane.Progress{Done: c.written, Total: len(c.items), Transactions: c.result.Transactions})
	}
	return nil
}

// maxElements is the limit for a transaction, for which the kernel then holds its
// lock for well below a tenth of a second.
const maxElements = 10_000

// What a transaction takes at most, in bytes: an operation on an element, which may
// be to replace it, in messages of its own; and everything besides elements.
const (
	operationBytes = 400
	otherBytes     = 64 << 10
	minElements    = 100
)

// boundFor returns how many elements a transaction may have if the kernel takes that
// many bytes.
func boundFor(bytes int) int {
	return max(min(maxElements, (bytes-otherBytes)/operationBytes), minElements)
}
