//go:build linux

package nftables

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// A restart reads what is in the kernel before it changes anything. Of a large table it puts off most: the slots of
// frontends, and the hairpins that follow from them. What it reads at once says where each frontend leads and how many
// slots it has, so that packets find an endpoint; what differs in that is written at once. All other frontends are
// unread: in the mirror they have the slots that they should have.
//
//   - A change of an unread frontend reads its slots first. Of hairpins, those to be removed are looked up.
//   - Meanwhile Verify reads all others on a connection of its own, and judges some at a time, between two commits: a
//     frontend that was written since is not unread any more. Repair writes what differs.

// laterSets are those that are read later, besides hairpins.
var laterSets = []string{endpoints, localEndpoints, nodePortEndpoints, nodePortLocal}

// readLater reports whether the slots of a frontend are in one of laterSets.
func readLater(k plan.Key) bool { return !isPool(k) && !k.IsRange() }

// putsOff reports whether a table with so many elements is read later. If the kernel does not say how many it has,
// there are probably as many as there should be.
func (g *slotGuess) putsOff(counts map[string]int) bool {
	if g == nil || !g.later {
		return false
	}
	return slices.ContainsFunc(laterSets, func(set string) bool {
		return counts[set] > g.most || counts[set] < 0 && g.all > g.most
	})
}

// slotSizes says how many slots a frontend probably has in the pools of Route and Outside.
type slotSizes struct{ route, outside int }

// readSlotsOf reads the slots of frontends of which all else is known.
func (t *table) readSlotsOf(ctx context.Context, c *nft.Conn, frontends map[plan.Key]*programmed,
	sizes func(plan.Key) slotSizes) error {
	r := newReader(t.layout, &contents{table: t.Table, frontends: frontends})
	expected := map[string]map[plan.Key]int{}
	expect := func(set string, k plan.Key, n int) {
		if expected[set] == nil {
			expected[set] = map[plan.Key]int{}
		}
		expected[set][k] = n
	}
	for k, p := range frontends {
		p.slots, p.outsideSlots = nil, nil
		m, n := mapsOf(k), sizes(k)
		expect(m.slots, k, n.route)
		expect(m.outsideSlots, k, n.outside)
	}
	for set, expected := range expected {
		if _, err := r.readPools(ctx, c, t.Table, set, expected, -1); err != nil {
			return err
		}
	}
	return nil
}

// adoptUnread takes the frontends of which everything but the slots was read, and is as desired. It reads the slots of
// the others, which are to be changed.
func (d *Dataplane) adoptUnread(ctx context.Context, t *table, have *contents, desired *plan.Desired,
	guess *slotGuess) error {
	if !have.unread {
		return nil
	}
	t.unread, t.comparing = map[plan.Key]struct{}{}, true
	differ := map[plan.Key]*programmed{}
	for k := range frontendsOf(t.family, desired) {
		if !readLater(k) {
			continue
		}
		now := have.frontends[k]
		if now == nil {
			now = &programmed{}
		} else if f := t.compile(desired.Frontends[k], now, nil); now.sameBesidesSlots(&f.programmed) {
			t.replace(nil, f)
			t.frontends[k] = f
			t.unread[k] = struct{}{}
			continue
		}
		differ[k] = now
	}
	t.hairpins.Assume()
	for k, now := range have.frontends {
		if _, wanted := desired.Frontends[k]; !wanted && readLater(k) {
			differ[k] = now
		}
	}
	sizes := func(k plan.Key) slotSizes {
		if have.frontends[k] == nil {
			return slotSizes{} // probably none
		}
		return slotSizes{guess.of(k, false), guess.of(k, true)}
	}
	if err := t.readSlotsOf(ctx, d.writer, differ, sizes); err != nil {
		return err
	}
	for k, now := range differ { // slots without a verdict
		if have.frontends[k] == nil && len(now.slots)+len(now.outsideSlots) > 0 {
			have.frontends[k] = now
		}
	}
	return nil
}

// learn reads the slots of the unread frontends that a change is about.
func (d *Dataplane) learn(ctx context.Context, change *plan.Change) error {
	for _, t := range d.tables {
		t.learned = map[plan.Key]*programmed{}
		sizes := map[plan.Key]slotSizes{}
		d.commits.Locked(func() {
			note := func(k plan.Key) {
				if _, unread := t.unread[k]; unread {
					now := t.frontends[k].programmed
					t.learned[k], sizes[k] = &now, slotSizes{len(now.slots), len(now.outsideSlots)}
				}
			}
			for _, f := range change.Set {
				note(f.Key)
			}
			for _, k := range change.Removed {
				note(k)
			}
		})
		if err := t.readSlotsOf(ctx, d.writer, t.learned, func(k plan.Key) slotSizes { return sizes[k] }); err != nil {
			return err
		}
	}
	return nil
}

// nowOf returns what the kernel holds of a frontend, and the frontend if that is what follows from it.
func (t *table) nowOf(f *frontend) (now *programmed, was *frontend) {
	if f != nil {
		if learned := t.learned[f.Key]; learned != nil {
			return learned, nil
		}
	}
	return f.now(), f
}

// readRest compares what a restart put off, concurrently with commits, and reports what differs.
func (d *Dataplane) readRest(ctx context.Context, report func(*foreignWrites)) error {
	var rest []*unreadPart
	err := d.commits.WhenIdle(ctx, func(uint64) {
		for _, t := range d.tables {
			if t.comparing {
				rest = append(rest, &unreadPart{table: t, frontends: maps.Clone(t.frontends), unread: maps.Clone(t.unread),
					hairpins: map[netip.Addr]struct{}{}, suspect: map[string]struct{}{}})
			}
		}
	})
	if err != nil || len(rest) == 0 {
		return err
	}
	good := true
	note := func(found *foreignWrites) {
		good = good && found.empty()
		report(found)
	}
	for _, p := range rest {
		if err := p.compare(ctx, d, note); err != nil {
			return err
		}
	}
	if err := d.findUnread(ctx, rest, note); err != nil {
		return err
	}
	return d.commits.WhenIdle(ctx, func(uint64) {
		for _, p := range rest {
			if p.table.comparing = false; good { // otherwise Repair decides
				p.table.hairpins.Certain()
			}
		}
	})
}

// unreadPart is a table at the beginning of a comparison.
type unreadPart struct {
	table     *table
	frontends map[plan.Key]*frontend
	unread    map[plan.Key]struct{}
	hairpins  map[netip.Addr]struct{} // that were compared
	// suspect are sets that may have as many surplus elements as others are missing.
	suspect map[string]struct{}
}

// compare reads the slots of unread frontends, and the hairpins of all.
func (p *unreadPart) compare(ctx context.Context, d *Dataplane, report func(*foreignWrites)) error {
	var a arena
	some, keys, size := map[plan.Key]*frontend{}, []nft.Element(nil), 0
	for k, f := range p.frontends {
		if _, unread := p.unread[k]; unread {
			some[k] = f
			size += len(f.slots) + len(f.outsideSlots)
		}
		for _, pool := range f.hairpins() {
			for _, e := range pool {
				if _, again := p.hairpins[e.Addr()]; !again {
					p.hairpins[e.Addr()] = struct{}{}
					keys = append(keys, nft.Element{Key: hairpinKey(&a.Arena, e.Addr())})
				}
			}
		}
		if size+len(keys) < lookupChunk {
			continue
		}
		if err := d.compareSome(ctx, p, some, keys, report); err != nil {
			return err
		}
		a.reset()
		some, keys, size = map[plan.Key]*frontend{}, keys[:0], 0
	}
	return d.compareSome(ctx, p, some, keys, report)
}

// compareSome reads the slots of some unread frontends, and some hairpins.
func (d *Dataplane) compareSome(ctx context.Context, p *unreadPart, some map[plan.Key]*frontend, keys []nft.Element,
	report func(*foreignWrites)) error {
	t := p.table
	now := make(map[plan.Key]*programmed, len(some))
	for k, f := range some {
		p := f.programmed
		now[k] = &p
	}
	sizes := func(k plan.Key) slotSizes { return slotSizes{len(some[k].slots), len(some[k].outsideSlots)} }
	if err := t.readSlotsOf(ctx, d.reader, now, sizes); err != nil {
		return err
	}
	found := foreignWrites{}
	err := d.reader.Lookup(ctx, t.Table, hairpin, keys, func(i int, e *nft.Element) error {
		if e == nil {
			found.add(t.nf, hairpin, &keys[i])
			p.suspect[hairpin] = struct{}{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = d.commits.WhenIdle(ctx, func(uint64) {
		if !slices.Contains(d.tables, t) {
			return
		}
		for k, f := range some {
			if _, unread := t.unread[k]; unread && t.frontends[k] == f && !t.judge(f, now[k]) {
				found.addSlots(t, k, now[k])
				p.note(k, f, now[k])
			}
		}
	})
	report(&found)
	return err
}

// judge compares what the kernel holds of an unread frontend with what it should, and takes the slots if they are the
// same in another order. The caller holds the lock, and no commit is in progress.
func (t *table) judge(f *frontend, now *programmed) bool {
	if !slices.Equal(now.slots, f.slots) || !slices.Equal(now.outsideSlots, f.outsideSlots) {
		as := t.compile(f.Frontend, now, nil)
		if !now.same(&as.programmed) {
			return false
		}
		as.moved = f.moved
		t.frontends[f.Key] = as
	}
	delete(t.unread, f.Key)
	return true
}

// note records sets with another number of a frontend's slots than there should be.
func (p *unreadPart) note(k plan.Key, f *frontend, now *programmed) {
	m := mapsOf(k)
	if len(now.slots) != len(f.slots) {
		p.suspect[m.slots] = struct{}{}
	}
	if len(now.outsideSlots) != len(f.outsideSlots) {
		p.suspect[m.outsideSlots] = struct{}{}
	}
}

// addSlots adds a frontend, and all slots that it has: there may be more than it should have.
func (w *foreignWrites) addSlots(t *table, k plan.Key, now *programmed) {
	var a arena
	m := mapsOf(k)
	w.add(t.nf, m.verdict, &nft.Element{Key: a.frontendKey(k)})
	for i := range now.slots {
		w.add(t.nf, m.slots, &nft.Element{Key: a.slotKey(k, i)})
	}
	for i := range now.outsideSlots {
		w.add(t.nf, m.outsideSlots, &nft.Element{Key: a.slotKey(k, i)})
	}
}

// findUnread reports slots and hairpins that no frontend has, if there may be any.
func (d *Dataplane) findUnread(ctx context.Context, rest []*unreadPart, report func(*foreignWrites)) error {
	s, structures, quiet, err := d.readStructures(ctx)
	if s == nil || err != nil {
		return err
	}
	if !quiet { // commits come so fast that nobody can count
		d.monitor.miss()
		return nil
	}
	for i, t := range s.tables {
		at := slices.IndexFunc(rest, func(p *unreadPart) bool { return p.table == t.table })
		if at < 0 {
			continue
		}
		if !structures[i].ours {
			report(&foreignWrites{structure: true})
			continue
		}
		suspect := rest[at].suspect
		for _, set := range append([]string{hairpin}, laterSets...) {
			if n := structures[i].counts[set]; n != t.expected[set] || n < 0 {
				suspect[set] = struct{}{}
			}
		}
		if err := d.findSurplus(ctx, t, slices.Collect(maps.Keys(suspect)), report); err != nil {
			return err
		}
	}
	return nil
}

// doubt finds out which hairpins that are to be removed there are.
func (c *commit) doubt(ctx context.Context) error {
	for _, t := range c.tables {
		if err := t.hairpins.Doubt(ctx, c.d.writer); err != nil {
			return err
		}
	}
	return nil
}
