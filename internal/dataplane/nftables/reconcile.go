package nftables

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/nft"
	"sluice/internal/plan"
)

// Reconcile reads our tables, adopts what is right, and mends the rest. What is
// not there yet is built in full before the first packet can meet it. If the kernel
// refuses to have the tables mended, new ones are built beside them: others can do
// to a table what cannot be seen in a listing, such as renaming a chain that rules
// lead to.
func (d *Dataplane) Reconcile(ctx context.Context, desired *plan.Desired) dataplane.Result {
	result := d.reconcile(ctx, desired, false)
	var refused *nft.Refused
	if errors.As(result.Err, &refused) && ctx.Err() == nil {
		d.logger.Info("The kernel refuses to have our nftables tables mended: building new ones", "reason", result.Err.Error())
		again := d.reconcile(ctx, desired, true)
		again.Transactions += result.Transactions
		again.Elements += result.Elements
		return again
	}
	return result
}

func (d *Dataplane) reconcile(ctx context.Context, desired *plan.Desired, afresh bool) dataplane.Result {
	d.forget()
	// From here on others are watched; what they did before will be seen by reading.
	d.watch.listening()
	d.watch.takeSuspects()
	r := &round{d: d, strict: true}
	for _, f := range model.Families {
		if !desired.Settings.Serves(f) {
			if _, err := removeTables(ctx, d.writer, tableNames[:], layouts[f].nf); err != nil {
				return dataplane.Result{Err: err}
			}
			continue
		}
		t, items, err := d.prepare(ctx, layouts[f], desired, afresh)
		if err != nil {
			return dataplane.Result{Err: fmt.Errorf("reading what is in the kernel: %w", err)}
		}
		r.tables = append(r.tables, t)
		r.items = append(r.items, items...)
	}
	d.watch.during(ctx, r.size(), func() { r.run(ctx) })
	if r.result.Err != nil {
		return r.result
	}
	d.commits.Locked(func() { d.tables, d.former = r.tables, nil })
	for _, t := range r.tables {
		d.followAll(t)
	}
	d.clients.wait(ctx)
	return r.result
}

// prepare makes a mirror of the family's table out of what is desired and what
// the kernel holds, and the items that lead from one to the other.
func (d *Dataplane) prepare(ctx context.Context, l *layout, desired *plan.Desired, afresh bool) (*table, []*item, error) {
	t, have, err := d.adopt(ctx, l, desired, afresh)
	if err != nil {
		return nil, nil, err
	}
	t.configure(desired.Settings)
	t.eachAddr(maps.Keys(desired.ClusterIPs), t.clusterIPs.Hold)
	t.takeMembers(have)
	t.junk = have.junk

	var items []*item
	for k := range frontendsOf(l.family, desired) {
		it := &item{table: t, key: k, now: have.frontends[k]}
		it.new = t.compile(desired.Frontends[k], it.now)
		t.exchange(nil, it.new)
		if it.now != nil && it.now.same(&it.new.programmed) {
			t.frontends[k] = it.new
			continue
		}
		items = append(items, it)
	}
	for k, now := range have.frontends {
		if _, wanted := desired.Frontends[k]; !wanted {
			items = append(items, &item{table: t, key: k, now: now})
		}
	}
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

// adopt chooses the table to go on with: one that is there if its layout is ours,
// or else, or if it shall begin afresh, a new one. All others go when it is complete, and not before: packets may
// be passing through them.
func (d *Dataplane) adopt(ctx context.Context, l *layout, desired *plan.Desired, afresh bool) (*table, *contents, error) {
	tables, err := ourTables(ctx, d.writer, l)
	if err != nil {
		return nil, nil, err
	}
	var have *contents
	if !afresh {
		if have, err = d.adoptable(ctx, l, tables, guessSlots(desired)); err != nil {
			return nil, nil, err
		}
	}
	var name string
	if have != nil {
		name = have.table.Name
	} else {
		if name, err = freeName(tables); err != nil {
			return nil, nil, err
		}
		if len(tables) > 0 {
			d.logger.Info("The nftables table that is there has another layout: it will be replaced",
				"family", l.nf.String(), "table", tables[0].Name)
		}
	}
	t := newTable(l.family, name, dataplane.Count(frontendsOf(l.family, desired)))
	for _, old := range tables {
		if old.Name != name {
			t.predecessors = append(t.predecessors, old)
		}
	}
	if have == nil {
		return t, &contents{}, nil
	}
	t.exists, t.asleep = true, have.table.Dormant
	return t, have, nil
}

// adoptable finds a table of our layout: one that packets come to if there is one,
// or else one that was not finished; nil for none.
func (d *Dataplane) adoptable(ctx context.Context, l *layout, tables []nft.Table, slots slotGuess) (have *contents, err error) {
	for _, found := range tables {
		c, err := d.readIfOurs(ctx, l, found, slots)
		if err != nil {
			return nil, err
		}
		if c != nil && (have == nil || c.live() && !have.live()) {
			have = c
		}
	}
	return have, nil
}

// freeName is a name that no table has.
func freeName(tables []nft.Table) (string, error) {
	for _, name := range tableNames {
		if !slices.ContainsFunc(tables, func(t nft.Table) bool { return t.Name == name }) {
			return name, nil
		}
	}
	return "", fmt.Errorf("there are tables %s of family %s, and none of them was made by this version (delete those that no packets pass through: nft delete table %s NAME)",
		strings.Join(tableNames[:], ", "), tables[0].Family, tables[0].Family)
}

// readIfOurs reads a table; nil if it is not one that can be adopted.
func (d *Dataplane) readIfOurs(ctx context.Context, l *layout, t nft.Table, slots slotGuess) (*contents, error) {
	sets, err := d.writer.Sets(ctx, t)
	if err != nil || !l.matches(sets) {
		return nil, err
	}
	have, err := readContents(ctx, d.writer, l, t, slots)
	if err != nil || !have.hooksAreOurs() {
		return nil, err
	}
	return have, nil
}

// live tells whether packets come to the table.
func (k *contents) live() bool {
	_, ok := k.chains[fixedNames[prerouting]]
	return ok
}

func (t *table) takeMembers(have *contents) {
	for _, ip := range have.hairpins {
		t.hairpins.Found(ip)
	}
	for _, ip := range have.clusterIPs {
		t.clusterIPs.Found(ip)
	}
	for _, ip := range have.nodePortIPs {
		t.nodePortIPs.Found(ip)
	}
	for _, e := range have.clusterAffine {
		t.clusterAffine.endpoints.Found(e)
	}
	for _, e := range have.localAffine {
		t.localAffine.endpoints.Found(e)
	}
}

// takeChains compares the kernel's chains with those that are wanted.
func (t *table) takeChains(have *contents) {
	clear(t.chains.strangers)
	for name := range have.chains {
		t.chains.strangers[name] = struct{}{}
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
		delete(t.chains.strangers, name)
		tags := tagsOf(c.rules(t.layout, &t.settings))
		t.chains.found(c, tags)
		if !slices.Equal(have.rules[name], tags) || found.Drops {
			t.chains.rewrite[c] = struct{}{}
		}
	}
}

// same tells whether two frontends are programmed alike, counters apart.
func (p *programmed) same(o *programmed) bool {
	return p.verdict == o.verdict && p.outside == o.outside &&
		p.recall == o.recall && p.sticky == o.sticky && p.filters == o.filters &&
		slices.Equal(p.slots, o.slots) && slices.Equal(p.outsideSlots, o.outsideSlots) &&
		sameSources(p, o)
}

// sameSources compares as sets: the kernel has no order.
func sameSources(p, o *programmed) bool {
	if len(p.sources) != len(o.sources) {
		return false
	}
	if slices.Equal(p.sources, o.sources) {
		return true
	}
	known := prefixSet(o.sources)
	for _, s := range p.sources {
		if _, ok := known[s]; !ok {
			return false
		}
	}
	return true
}
