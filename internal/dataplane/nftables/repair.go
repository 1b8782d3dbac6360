package nftables

import (
	"context"
	"errors"
	"fmt"

	"sluice/internal/dataplane"
	"sluice/internal/nft"
	"sluice/internal/plan"
)

// Repair looks at what others changed, and mends what of it is not as we left it. It
// fails if only Reconcile can help.
func (d *Dataplane) Repair(ctx context.Context) dataplane.Result {
	found := d.watch.takeSuspects()
	switch {
	case d.tables == nil:
		return dataplane.Result{Err: dataplane.ErrUnknown}
	case found.tooMany:
		return dataplane.Result{Err: errTooMuch}
	case found.empty():
		return dataplane.Result{}
	}
	d.commits.Begin()
	defer d.commits.End()
	r := &round{d: d, strict: true, tables: d.tables}
	for _, t := range d.tables {
		items, err := d.inspect(ctx, t, &found)
		if err != nil {
			d.forget()
			return dataplane.Result{Err: err}
		}
		r.items = append(r.items, items...)
	}
	d.watch.during(ctx, sizeOf(r.items), func() { r.run(ctx) })
	if r.result.Err != nil {
		d.forget()
	}
	return r.result
}

// inspect reads what is suspect of a table, and has the mirror say what the kernel
// holds of it. What is to be done with frontends is in the items.
func (d *Dataplane) inspect(ctx context.Context, t *table, found *suspects) ([]*item, error) {
	if found.structure {
		if err := d.inspectStructure(ctx, t); err != nil {
			return nil, err
		}
	}
	q := t.inquire(found)
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
	var items []*item
	for k := range q.frontends {
		if it := t.mend(k, have.frontends[k]); it != nil {
			items = append(items, it)
		}
	}
	return items, nil
}

// inspectStructure reads the table, its sets, chains and rules.
func (d *Dataplane) inspectStructure(ctx context.Context, t *table) error {
	s, err := readStructure(ctx, d.writer, t.layout, t.Name)
	if err != nil {
		return err
	}
	if !s.ours {
		return fmt.Errorf("table %s %s is gone, or has another layout, or is not the only one of ours", t.Family, t.Name)
	}
	t.asleep = s.table.Dormant
	t.takeChains(&s.contents)
	return nil
}

// inquiry is what of a table is to be read.
type inquiry struct {
	frontends map[plan.Key]struct{}
	// Keys by set: of frontends, and of sets that they share.
	elements, members map[string][]nft.Element
}

// inquire works out what to read of the suspects: of a frontend everything, since its
// elements only make sense together.
func (t *table) inquire(found *suspects) inquiry {
	q := inquiry{map[plan.Key]struct{}{}, map[string][]nft.Element{}, map[string][]nft.Element{}}
	known := map[suspect]struct{}{}
	add := func(s suspect) {
		if _, twice := known[s]; !twice {
			known[s] = struct{}{}
			q.elements[s.set] = append(q.elements[s.set], s.element())
		}
	}
	for s := range found.elements {
		nodePort, ofFrontend := frontendSets[s.set]
		switch {
		case s.family != t.nf:
			continue
		case !ofFrontend:
			q.members[s.set] = append(q.members[s.set], s.element())
			continue
		}
		add(s)
		if k, ok := t.ownerOf(s.set, []byte(s.key), nodePort); ok {
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
			add(suspectOf(t.nf, &w.ops[i]))
		}
	}
	return q
}

// ownerOf is the frontend that an element belongs to.
func (l *layout) ownerOf(set string, key []byte, nodePort bool) (k plan.Key, ok bool) {
	d := l.decode(key)
	if set == sources {
		k, _ = d.source()
	} else {
		k = d.frontend(nodePort)
	}
	return k, d.OK()
}

// mend makes an item that leads from what the kernel holds of a frontend to what the
// mirror says; nil if that is the same.
func (t *table) mend(k plan.Key, now *programmed) *item {
	old := t.frontends[k]
	switch {
	case old == nil && now == nil:
		return nil
	case old == nil:
		return &item{table: t, key: k, now: now}
	case now != nil && now.same(&old.programmed):
		return nil
	}
	it := &item{table: t, key: k, now: now, old: old, new: t.compile(old.Frontend, now)}
	t.exchange(old, it.new)
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

// structure is a table without its elements.
type structure struct {
	contents
	counts map[string]int // elements by set, -1 where the kernel does not tell
	ours   bool           // it is our one table of the family, and has our layout
}

// readStructure reads all of a table but its elements.
func readStructure(ctx context.Context, c *nft.Conn, l *layout, name string) (*structure, error) {
	for range readTries {
		s, err := tryStructure(ctx, c, l, name)
		if !errors.Is(err, nft.ErrInterrupted) || ctx.Err() != nil {
			return s, err
		}
	}
	return nil, fmt.Errorf("table %s %s: %w", l.nf, name, nft.ErrInterrupted)
}

func tryStructure(ctx context.Context, c *nft.Conn, l *layout, name string) (*structure, error) {
	s := &structure{counts: map[string]int{}}
	tables, err := ourTables(ctx, c, l)
	if err != nil || len(tables) != 1 || tables[0].Name != name {
		return s, err
	}
	s.table = tables[0]
	infos, err := c.Sets(ctx, s.table)
	if err != nil || !l.matches(infos) {
		return s, err
	}
	for _, i := range infos {
		s.counts[i.Name] = i.Count
	}
	if s.chains, s.rules, err = readChains(ctx, c, s.table); err != nil {
		return s, err
	}
	s.ours = s.hooksAreOurs()
	return s, nil
}
