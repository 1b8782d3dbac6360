//go:build linux

package nftables

import (
	"context"
	"fmt"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// Repair reads what other programs changed, and restores what differs from the mirror.
// It fails if a Reconcile is needed.
func (d *Dataplane) Repair(ctx context.Context) dataplane.Result {
	found := d.monitor.take()
	switch {
	case d.tables == nil:
		return dataplane.Result{Err: dataplane.ErrUnknown}
	case found.tooMany:
		return dataplane.Result{Err: errTooMany}
	case found.empty():
		return dataplane.Result{}
	}
	d.commits.Begin()
	defer d.commits.End()
	c := &commit{d: d, strict: true, tables: d.tables}
	for _, t := range d.tables {
		items, err := d.inspect(ctx, t, &found)
		if err != nil {
			d.forget()
			return dataplane.Result{Err: err}
		}
		c.items = append(c.items, items...)
	}
	d.monitor.during(ctx, sizeOf(c.items), func() { c.run(ctx) })
	if c.result.Err != nil {
		d.forget()
		return c.result
	}
	d.commits.Locked(func() {
		for _, t := range c.tables {
			if !t.comparing && d.monitor.quiet() {
				t.hairpins.Certain()
			}
		}
	})
	return c.result
}

// inspect reads the objects that others wrote to, and updates the mirror to what the
// kernel holds. It returns items for the frontends to repair.
func (d *Dataplane) inspect(ctx context.Context, t *table, found *foreignWrites) ([]*item, error) {
	if found.structure {
		if err := d.inspectStructure(ctx, t); err != nil {
			return nil, err
		}
	}
	q := t.queryFor(found)
	have := &contents{table: t.Table, frontends: map[plan.Key]*programmed{}}
	r := newReader(t.layout, have)
	for set, keys := range q.elements {
		if err := r.lookUp(ctx, d.writer, t.Table, set, keys); err != nil {
			return nil, err
		}
	}
	for _, m := range t.members() {
		keys := q.members[m.Name()]
		err := d.writer.Lookup(ctx, t.Table, m.Name(), keys, func(i int, e *nft.Element) error {
			if !m.Learn(keys[i].Key, e != nil) && e != nil {
				r.notOurs(m.Name(), e)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	t.junk = have.junk
	for k := range have.frontends { // blocks of ranges that there should not be
		if k.IsRange() && t.frontends[k] == nil {
			q.frontends[k] = struct{}{}
		}
	}
	var items []*item
	for k := range q.frontends {
		if it := t.repairItem(k, have.frontends[k]); it != nil {
			items = append(items, it)
		}
	}
	return items, nil
}

// inspectStructure reads the table, its sets, chains and rules.
func (d *Dataplane) inspectStructure(ctx context.Context, t *table) error {
	have, err := t.readStructure(ctx, d.writer)
	if err != nil {
		return err
	}
	if !have.ours {
		return fmt.Errorf("table %s %s was removed, or has another layout, or is not our only one", t.Family, t.Name)
	}
	for _, set := range rangeSetNames {
		_, there := have.chains[mapMark+set]
		if _, was := t.chains.present[rangeSetObject(set)]; was && !there {
			return fmt.Errorf("set %s of table %s %s was removed", set, t.Family, t.Name)
		}
	}
	t.inactive = have.table.Dormant
	t.takeChains(have)
	return nil
}

// readStructure reads everything of the table but its elements. It is not ours if there is
// another one beside it.
func (t *table) readStructure(ctx context.Context, c *nft.Conn) (have *contents, err error) {
	err = retry(ctx, t.Table, 0, func() error {
		tables, err := ourTables(ctx, c, t.layout, t.names)
		if err != nil || len(tables) != 1 || tables[0].Name != t.Name {
			have = &contents{}
			return err
		}
		have, err = readStructure(ctx, c, t.layout, t.target, tables[0])
		return err
	})
	return have, err
}

// query is the part of a table that is to be read.
type query struct {
	frontends map[plan.Key]struct{}
	// Keys by set: of frontends, and of sets that they share.
	elements, members map[string][]nft.Element
}

// queryFor returns what to read: of a frontend all elements, because they only make
// sense together.
func (t *table) queryFor(found *foreignWrites) query {
	q := query{map[plan.Key]struct{}{}, map[string][]nft.Element{}, map[string][]nft.Element{}}
	known := map[elementID]struct{}{}
	add := func(id elementID) {
		if _, twice := known[id]; !twice {
			known[id] = struct{}{}
			q.elements[id.set] = append(q.elements[id.set], id.element())
		}
	}
	for id := range found.elements {
		_, ofFrontend := frontendSets[id.set]
		switch {
		case id.family != t.nf:
			continue
		case !ofFrontend:
			q.members[id.set] = append(q.members[id.set], id.element())
			continue
		}
		add(id)
		if k, ok := t.ownerOf(id.set, []byte(id.key)); ok {
			q.frontends[k] = struct{}{}
		}
	}
	w := newOpWriter()
	for k := range q.frontends {
		f := t.frontends[k]
		if f == nil {
			continue
		}
		w.reset()
		w.difference(k, nil, &f.programmed)
		for i := range w.ops {
			add(elementID{t.nf, w.ops[i].set, string(w.ops[i].element.Key)})
		}
	}
	return q
}

// ownerOf returns the frontend that an element belongs to.
func (t *table) ownerOf(set string, key []byte) (k plan.Key, ok bool) {
	d, of := t.decode(key), frontendSets[set]
	if m, is := blockMapsByName[set]; is {
		if k, ok = t.rangeAt(d.block(m.bits)); !ok {
			return k, false
		}
		return k, d.OK()
	}
	switch set {
	case sources, rangeSources:
		k, _ = d.source(of)
	case pools:
		k = d.pool()
	default:
		k = d.frontend(of)
	}
	return k, d.OK()
}

// repairItem returns an item that changes a frontend from what the kernel holds to
// what the mirror says; nil if that is the same.
func (t *table) repairItem(k plan.Key, now *programmed) *item {
	old := t.frontends[k]
	switch {
	case old == nil && now == nil:
		return nil
	case old == nil:
		return &item{table: t, key: k, now: now}
	case now != nil && now.same(&old.programmed):
		return nil
	}
	it := &item{table: t, key: k, now: now, old: old, new: t.compile(old.Frontend, now, nil)}
	t.replace(old, it.new)
	return it
}

// lookUp reads elements of a set by their keys.
func (r *reader) lookUp(ctx context.Context, c *nft.Conn, t nft.Table, set string, keys []nft.Element) error {
	take := r.forSet(set)
	if take == nil {
		return nil
	}
	clear(r.seen)
	return c.Lookup(ctx, t, set, keys, func(_ int, e *nft.Element) error {
		if e != nil && !take(e) {
			r.notOurs(set, e)
		}
		return nil
	})
}
