//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Reconcile reads our tables, adopts what is right, and repairs the rest. A new table
// is complete before it gets packets. If the kernel refuses the repair, new tables are
// built beside the old ones: others can do to a table what no dump shows, such as
// renaming a chain that rules lead to.
func (d *Dataplane) Reconcile(ctx context.Context, desired *plan.Desired) dataplane.Result {
	result := d.reconcile(ctx, desired, false)
	var refused *nft.Refused
	if errors.As(result.Err, &refused) && ctx.Err() == nil {
		d.logger.Info("The kernel refuses the repair of our nftables tables, building new ones", "reason", result.Err.Error())
		again := d.reconcile(ctx, desired, true)
		again.Transactions += result.Transactions
		again.Elements += result.Elements
		if again.Err != nil && !errors.As(again.Err, &refused) { // why there are none says less than why they are needed
			again.Err = fmt.Errorf("%w, and new tables cannot be built: %w", result.Err, again.Err)
		}
		return again
	}
	return result
}

func (d *Dataplane) reconcile(ctx context.Context, desired *plan.Desired, fresh bool) dataplane.Result {
	d.forget()
	// Foreign writes before this are seen by reading.
	d.monitor.listen()
	d.monitor.take()
	c := &commit{d: d, strict: true}
	for _, f := range model.Families {
		if !desired.Settings.Serves(f) {
			if _, err := removeTables(ctx, d.writer, d.names[:], layouts[f].nf); err != nil {
				return dataplane.Result{Err: err}
			}
			continue
		}
		t, items, err := d.prepare(ctx, d.layouts[f], desired, fresh)
		if err != nil {
			return dataplane.Result{Err: fmt.Errorf("reading what is in the kernel: %w", err)}
		}
		c.tables = append(c.tables, t)
		c.items = append(c.items, items...)
	}
	d.monitor.during(ctx, c.size(), func() { c.run(ctx) })
	if c.result.Err != nil {
		return c.result
	}
	d.commits.Locked(func() { d.tables, d.former = c.tables, nil })
	d.adopted = true
	for _, t := range c.tables {
		c.result.Unread = c.result.Unread || t.comparing
		d.clients.follow(t, t.moves(t.clientMaps()))
	}
	d.clients.wait(ctx)
	return c.result
}

// prepare returns a mirror of the family's table, made of what is desired and of what
// the kernel holds, and the items that change the latter to the former.
func (d *Dataplane) prepare(ctx context.Context, l *layout, desired *plan.Desired, fresh bool) (*table, []*item, error) {
	guess := guessSlots(desired)
	guess.later, guess.most = !d.adopted && d.target == nil, d.most
	t, have, err := d.adopt(ctx, l, desired, guess, fresh)
	if err != nil {
		return nil, nil, err
	}
	t.configure(desired.Settings)
	t.eachAddr(maps.Keys(desired.ClusterIPs), t.clusterIPs.Hold)
	t.junk = have.junk
	t.takeMembers(have)
	if err := d.adoptUnread(ctx, t, have, desired, guess); err != nil {
		return nil, nil, err
	}

	var items []*item
	for pool := range t.pools(dataplane.OfFamily(l.family, (*plan.Frontend).Family, maps.Values(desired.Frontends))) {
		if it := t.poolItem(pool, nil, have.frontends[pool.Key]); it != nil {
			items = append(items, it)
		}
	}
	for k := range frontendsOf(l.family, desired) {
		if _, unread := t.unread[k]; unread {
			continue
		}
		it := &item{table: t, key: k, now: have.frontends[k]}
		it.new = t.compile(desired.Frontends[k], it.now, nil)
		t.replace(nil, it.new)
		if it.now != nil && it.now.same(&it.new.programmed) {
			t.frontends[k] = it.new
			continue
		}
		items = append(items, it)
	}
	for k, now := range have.frontends {
		if _, wanted := desired.Frontends[k]; !wanted && t.users[k] == 0 {
			items = append(items, &item{table: t, key: k, now: now})
		}
	}
	t.followRanges()
	// A range may take the place of another one.
	slices.SortStableFunc(items, func(a, b *item) int {
		first := func(it *item) bool { return it.key.IsRange() && it.new == nil }
		switch {
		case first(a) == first(b):
			return 0
		case first(a):
			return -1
		}
		return 1
	})
	if have.manyHairpins > 0 {
		junk := func(e *nft.Element) { t.junk = append(t.junk, junkOf(hairpin, e)) }
		if err := t.hairpins.Find(ctx, d.writer, have.manyHairpins, junk); err != nil {
			return nil, nil, err
		}
	}
	t.takeChains(have)
	return t, items, nil
}

// frontendsOf yields the frontends of a family.
func frontendsOf(f model.Family, desired *plan.Desired) iter.Seq[plan.Key] {
	return dataplane.OfFamily(f, plan.Key.Family, maps.Keys(desired.Frontends))
}

// adopt chooses the table to use: an existing one with our layout, or a new one if
// there is none or if fresh is set. The others are removed when it is complete, and
// not before: packets may pass through them.
func (d *Dataplane) adopt(ctx context.Context, l *layout, desired *plan.Desired, guess *slotGuess, fresh bool) (*table, *contents, error) {
	tables, err := ourTables(ctx, d.writer, l, d.names)
	if err != nil {
		return nil, nil, err
	}
	var have *contents
	if !fresh {
		if have, err = d.adoptable(ctx, l, tables, guess); err != nil {
			return nil, nil, err
		}
	}
	var name string
	if have != nil {
		name = have.table.Name
	} else {
		if name, err = d.freeName(tables); err != nil {
			return nil, nil, err
		}
		if len(tables) > 0 {
			d.logger.Info("The existing nftables table has another layout and will be replaced",
				"family", l.nf.String(), "table", tables[0].Name)
		}
	}
	t := newTable(l, name, d.target, dataplane.Count(frontendsOf(l.family, desired)))
	t.names = d.names
	for _, old := range tables {
		if old.Name != name {
			t.predecessors = append(t.predecessors, old)
		}
	}
	if have == nil {
		return t, &contents{}, nil
	}
	t.exists, t.inactive = true, have.table.Dormant
	return t, have, nil
}

// adoptable returns the contents of a table with our layout: one that gets packets if
// there is one, or else one that was not completed; nil if there is none.
func (d *Dataplane) adoptable(ctx context.Context, l *layout, tables []nft.Table, slots *slotGuess) (have *contents, err error) {
	for _, found := range tables {
		c, err := d.readContents(ctx, d.writer, l, found, slots)
		if err != nil {
			return nil, err
		}
		if c != nil && (have == nil || c.live() && !have.live()) {
			have = c
		}
	}
	return have, nil
}

// freeName returns a name that no table has.
func (d *Dataplane) freeName(tables []nft.Table) (string, error) {
	for _, name := range d.names {
		if !slices.ContainsFunc(tables, func(t nft.Table) bool { return t.Name == name }) {
			return name, nil
		}
	}
	return "", fmt.Errorf("there are tables %s of family %s, and none of them was made by this version (delete those that no packets pass through: nft delete table %s NAME)",
		strings.Join(d.names[:], ", "), tables[0].Family, tables[0].Family)
}

// live reports whether the table gets packets.
func (k *contents) live() bool {
	_, ok := k.chains[fixedNames[prerouting]]
	return ok
}

func (t *table) takeMembers(have *contents) {
	for _, m := range t.members() {
		for _, e := range have.members[m.Name()] {
			if !m.Learn(e.Key, true) {
				t.junk = append(t.junk, junkOf(m.Name(), &e))
			}
		}
	}
}

// takeChains compares the kernel's chains with those that are needed.
func (t *table) takeChains(have *contents) {
	clear(t.chains.foreign)
	for name := range have.chains {
		t.chains.foreign[name] = struct{}{}
	}
	gone := map[chain]struct{}{}
	for c := range t.chains.present {
		if _, there := have.chains[t.chains.name(c)]; !there {
			gone[c] = struct{}{}
		}
	}
	t.chains.lost(gone)
	for c := range t.chains.refs {
		name := t.chains.name(c)
		found, there := have.chains[name]
		if !there {
			continue
		}
		delete(t.chains.foreign, name)
		tags := tagsOf(c.rules(t.layout, &t.settings))
		t.chains.found(c, tags)
		if !slices.Equal(have.rules[name], tags) || found.Drops {
			t.chains.rewrite[c] = struct{}{}
		}
	}
}

// same reports whether two frontends are programmed equally, except counters.
func (p *programmed) same(o *programmed) bool {
	return p.sameBesidesSlots(o) && slices.Equal(p.slots, o.slots) && slices.Equal(p.outsideSlots, o.outsideSlots)
}

func (p *programmed) sameBesidesSlots(o *programmed) bool {
	return p.verdict == o.verdict && p.outside == o.outside &&
		p.recall == o.recall && p.sticky == o.sticky && p.filters == o.filters &&
		sameSources(p, o) && sameBlocks(p.blocks, o.blocks) && sameBlocks(p.outsideBlocks, o.outsideBlocks)
}

// sameSources compares as sets: the kernel does not keep the order.
func sameSources(p, o *programmed) bool {
	if len(p.sources) != len(o.sources) {
		return false
	}
	if slices.Equal(p.sources, o.sources) {
		return true
	}
	known := prefixSet(o.sources)
	return !slices.ContainsFunc(p.sources, func(s netip.Prefix) bool { _, ok := known[s]; return !ok })
}
