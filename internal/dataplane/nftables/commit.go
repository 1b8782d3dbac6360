//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// commit is one Apply, Repair or Reconcile.
type commit struct {
	d      *Dataplane
	tables []*table
	items  []*item
	// written counts the items that are done.
	written int
	result  dataplane.Result
	// strict says that the kernel was read just before, so that a refused item is
	// itself the cause.
	strict bool
}

// run writes the commit. Frontends that the kernel refuses are left out and recorded
// in the result.
func (c *commit) run(ctx context.Context) {
	if c.result.Err = c.doubt(ctx); c.result.Err == nil {
		c.result.Err = c.write(ctx)
	}
}

// size estimates how many elements the commit will write, as far as that matters.
func (c *commit) size() int {
	n := sizeOf(c.items)
	for _, t := range c.tables {
		n += t.missing(manyElements) + t.surplus(manyElements)
	}
	return n
}

// done updates the mirror after a transaction.
func (c *commit) done(t *transaction) {
	c.d.commits.Lock()
	defer c.d.commits.Unlock()
	c.logElements(t.items)
	if t.prologue {
		for _, table := range c.tables {
			table.prologueDone()
		}
	}
	c.written += len(t.items)
	c.d.transactions++
	for _, it := range t.items {
		delete(c.d.refused, it.key)
		delete(it.table.unread, it.key)
		c.d.carryTraffic(it)
		if it.new == nil {
			delete(it.table.frontends, it.key)
			continue
		}
		if it.new.moved = c.d.transactions; it.old != nil && it.now != nil && !it.now.targetsDiffer(it.want()) {
			it.new.moved = it.old.moved
		}
		it.table.frontends[it.key] = it.new
	}
	if t.epilogue {
		for _, table := range c.tables {
			table.epilogueDone()
		}
	}
}

// logElements logs each element that was written, at a high verbosity. Chunks do not keep
// their operations, so they are computed again.
func (c *commit) logElements(items []*item) {
	log := c.d.logger.V(dataplane.LogElements)
	if !log.Enabled() {
		return
	}
	w := newOpWriter()
	for _, it := range items {
		sets := map[string]*nft.Set{}
		for _, s := range append(it.table.sets(), it.table.rangeSets()...) {
			sets[s.Name] = s
		}
		w.reset()
		w.difference(it.key, it.now, it.want())
		for i := range w.ops {
			o := &w.ops[i]
			action, text := "replaced", ""
			switch set := sets[o.set]; {
			case !o.add:
				action, text = "removed", set.KeyText(&o.element)
			case !o.remove:
				action, text = "added", set.Text(&o.element)
			default:
				text = set.Text(&o.element)
			}
			log.Info("Element "+action, "table", it.table.Family.String()+" "+it.table.Name, "set", o.set, "element", text)
		}
	}
}

// leaveOut returns the items that were not refused, and undoes the others.
func (c *commit) leaveOut(items []*item, refused *nft.Refused) ([]*item, error) {
	bad := map[int]error{}
	for _, m := range refused.Messages {
		if m.Owner == 0 {
			return nil, refused
		}
		bad[int(m.Owner)-1] = m.Err
	}
	var kept []*item
	for i, it := range items {
		if err, refused := bad[i]; refused {
			c.fail(it, err)
		} else {
			kept = append(kept, it)
		}
	}
	return kept, nil
}

// fail records that an item was refused, and undoes what it did to the mirror. If an
// element was unexpectedly present or missing, the cause may be the item itself or a
// foreign write: then the kernel has to be read.
func (c *commit) fail(it *item, err error) {
	if c.result.Failed == nil {
		c.result.Failed = map[plan.Key]error{}
	}
	if isPool(it.key) {
		c.failPool(it, err)
	} else {
		c.result.Failed[it.key] = fmt.Errorf("the kernel refused %s: %w", it.key, err)
		delete(c.result.Left, it.key)
	}
	it.table.replace(it.new, it.old)
	c.keepPools(it.table)
	_, known := c.d.refused[it.key]
	if c.strict {
		c.d.refused[it.key] = struct{}{}
	} else if !known && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST)) {
		c.d.monitor.report(func(w *foreignWrites) { w.addOps(it.table.nf, it.ops) })
	}
}
