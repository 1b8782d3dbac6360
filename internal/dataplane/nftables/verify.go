package nftables

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"sluice/internal/nft"
	"sluice/internal/plan"
)

// Verify compares the kernel with the mirror, unless it can tell that nobody but us
// wrote to our tables since it last did. What it finds is left for Repair.
func (d *Dataplane) Verify(ctx context.Context) (bool, error) {
	select {
	case d.verifying <- struct{}{}:
		defer func() { <-d.verifying }()
	case <-ctx.Done():
		return true, ctx.Err()
	}
	doubts, known := d.watch.doubted()
	if known && doubts == d.settled {
		return true, nil
	}
	good := true
	err := d.check(ctx, func(found *suspects) {
		good = false
		d.watch.suspect(func(s *suspects) { s.join(found) })
	})
	if err != nil {
		return true, err
	}
	d.settled = doubts
	return good, nil
}

// settleShare is how much more time passes than is spent on comparing, so that it takes
// a three-hundredth of a core, however large the tables are and however often there is a
// doubt.
const settleShare = 300

// rest waits after a piece of comparing that began then.
func rest(ctx context.Context, start time.Time) {
	select {
	case <-ctx.Done():
	case <-time.After(max(settleShare*time.Since(start), quietPause)):
	}
}

// settleDoubts compares when somebody wrote and nobody watched, beside all else.
func (d *Dataplane) settleDoubts(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-d.watch.unwatched:
		}
		_, err := d.Verify(ctx)
		if err != nil && ctx.Err() == nil {
			d.logger.V(1).Info("Cannot tell whether somebody else changed our nftables tables", "reason", err.Error())
			d.watch.unwatched.Notify()
		}
		select {
		case <-ctx.Done():
		case <-time.After(settlePause):
		}
	}
}

// settlePause is the least time between two comparisons.
const settlePause = time.Second

// snapshot is what the mirror says the kernel holds, at a moment at which nobody
// writes.
type snapshot struct {
	commits uint64
	tables  []*tableSnapshot
}

type tableSnapshot struct {
	table     *table
	frontends map[plan.Key]*frontend
	chains    map[string]nft.Chain
	rules     map[string][]uint64
	// members are keys of the sets that frontends share, but for hairpins, of which
	// there can be as many as there are endpoints. Frontends know theirs.
	members map[string][]nft.Element
	// expected is how many elements each set has.
	expected map[string]int
}

// quietPause is the time between two looks whether somebody is writing.
const quietPause = 5 * time.Millisecond

// takeSnapshot is nil while it is not known what the kernel holds.
func (d *Dataplane) takeSnapshot(ctx context.Context) (s *snapshot, err error) {
	err = d.commits.WhenIdle(ctx, func(n uint64) {
		if d.tables == nil {
			return
		}
		s = &snapshot{commits: n}
		for _, t := range d.tables {
			s.tables = append(s.tables, t.snapshot())
		}
	})
	if s != nil && err == nil {
		for _, t := range s.tables {
			t.count()
		}
	}
	return s, err
}

func (t *table) snapshot() *tableSnapshot {
	s := &tableSnapshot{
		table:     t,
		frontends: maps.Clone(t.frontends),
		chains:    make(map[string]nft.Chain, len(t.chains.present)),
		rules:     make(map[string][]uint64, len(t.chains.present)),
		members:   map[string][]nft.Element{},
		expected:  map[string]int{hairpin: t.hairpins.Len()},
	}
	for c, tags := range t.chains.present {
		name := t.chains.name(c)
		s.chains[name] = c.nft()
		if len(tags) > 0 {
			s.rules[name] = tags
		}
	}
	for _, m := range t.members() {
		if m.Name() != hairpin {
			s.members[m.Name()] = m.Present()
		}
	}
	return s
}

// count works out how many elements each set should have.
func (s *tableSnapshot) count() {
	for set, keys := range s.members {
		s.expected[set] = len(keys)
	}
	for k, f := range s.frontends {
		f.tallyElements(mapsOf(k), s.expected)
	}
}

// tallyElements counts the elements of a frontend by set.
func (p *programmed) tallyElements(m frontendMaps, into map[string]int) {
	single := func(set string, there bool) {
		if there {
			into[set]++
		}
	}
	single(m.verdict, p.verdict != "")
	single(m.outside, p.outside != "")
	single(m.recall, p.recall != "")
	single(m.sticky, p.sticky != "")
	single(filters, p.filters)
	into[m.slots] += len(p.slots)
	into[m.outsideSlots] += len(p.outsideSlots)
	into[sources] += len(p.sources)
}

// unchanged tells whether nobody wrote since the snapshot was taken.
func (d *Dataplane) unchanged(s *snapshot) bool {
	d.commits.Lock()
	defer d.commits.Unlock()
	return !d.commits.Since(s.commits) && slices.Contains(d.tables, s.tables[0].table)
}

// quietTries is how often the structure of the tables is read anew because a change
// was written meanwhile.
const quietTries = 10

// check compares the kernel with the mirror, while changes go on, and reports what
// differs. What a change touches meanwhile may be among that without reason. First it
// looks at what is quickly read: chains, rules, and how many elements there are. All the
// elements follow, bit by bit if so far all is well.
func (d *Dataplane) check(ctx context.Context, report func(*suspects)) error {
	s, structures, quiet, err := d.readStructures(ctx)
	if s == nil || err != nil {
		return err
	}
	for i, t := range s.tables {
		have := structures[i]
		if !quiet || !t.sameStructure(have) {
			report(&suspects{structure: true}) // Repair looks again, at a time when nothing changes
		}
		if !have.ours {
			continue
		}
		more := t.sizesThatDiffer(have.counts)
		if err := d.checkElements(ctx, t, quiet && len(more) > 0, report); err != nil {
			return err
		}
		if !quiet {
			continue
		}
		if err := d.findSurplus(ctx, t, more, report); err != nil {
			return err
		}
	}
	return nil
}

// readStructures reads all but the elements, at a moment at which nothing changes if
// there is one.
func (d *Dataplane) readStructures(ctx context.Context) (s *snapshot, list []*structure, quiet bool, err error) {
	for try := 0; try < quietTries && !quiet; try++ {
		if s, err = d.takeSnapshot(ctx); s == nil || err != nil {
			return nil, nil, false, err
		}
		list = nil
		for _, t := range s.tables {
			have, err := readStructure(ctx, d.reader, t.table.layout, t.table.Name)
			if err != nil {
				return nil, nil, false, err
			}
			list = append(list, have)
		}
		quiet = d.unchanged(s)
	}
	return s, list, quiet, nil
}

func (s *tableSnapshot) sameStructure(have *structure) bool {
	return have.ours && !have.table.Dormant &&
		maps.Equal(s.chains, have.chains) && maps.EqualFunc(s.rules, have.rules, slices.Equal)
}

// sizesThatDiffer are the sets that have not as many elements as they should, and those
// of which the kernel does not tell how many they have. Of these it leaves out where
// nothing depends on what is too much: no packet meets what is beyond the end of a pool,
// or an address that is no endpoint.
func (s *tableSnapshot) sizesThatDiffer(counts map[string]int) (sets []string) {
	for _, set := range s.table.sets() {
		n := counts[set.Name]
		_, slots := slotMaps[set.Name]
		switch {
		case n == s.expected[set.Name], slices.Contains(clientMaps, set.Name):
		case n < 0 && (slots || set.Name == hairpin):
		default:
			sets = append(sets, set.Name)
		}
	}
	return sets
}

// checkedAtOnce is about how many elements are looked up at a time.
const checkedAtOnce = 4_000

// checkElements looks all elements up that there should be.
func (d *Dataplane) checkElements(ctx context.Context, s *tableSnapshot, hurry bool, report func(*suspects)) error {
	t, start := s.table, time.Now()
	breathe := func() {
		if !hurry && time.Since(start) > quietPause {
			rest(ctx, start)
			start = time.Now()
		}
	}
	for set, all := range s.members {
		for keys := range slices.Chunk(all, checkedAtOnce) {
			found := suspects{}
			err := d.reader.Lookup(ctx, t.Table, set, keys, func(i int, e *nft.Element) error {
				if e == nil {
					found.add(t.nf, set, &keys[i])
				}
				return nil
			})
			if err != nil {
				return err
			}
			if !found.empty() {
				report(&found)
			}
			breathe()
		}
	}
	wrong, w := map[plan.Key]struct{}{}, newOpWriter()
	var owners []plan.Key
	for k, f := range s.frontends {
		w.difference(k, nil, &f.programmed)
		w.hairpins(f)
		for len(owners) < len(w.ops) {
			owners = append(owners, k)
		}
		if len(w.ops) < checkedAtOnce {
			continue
		}
		if err := d.checkOps(ctx, t, w.ops, owners, wrong, report); err != nil {
			return err
		}
		w.reset()
		owners = owners[:0]
		breathe()
	}
	if err := d.checkOps(ctx, t, w.ops, owners, wrong, report); err != nil {
		return err
	}
	return d.stillWrong(ctx, s, wrong, report)
}

// hairpins appends the addition of the hairpins that a frontend has.
func (w *opWriter) hairpins(f *frontend) {
	for _, pool := range f.hairpins() {
		for _, e := range pool {
			w.put(hairpin, hairpinKey(&w.arena.Arena, e.Addr()), nft.Element{}, false, true)
		}
	}
}

// checkOps looks up what operations would have added. Hairpins that are not there are
// reported; of frontends that are not as they should be it adds the keys.
func (d *Dataplane) checkOps(ctx context.Context, t *table, ops []op, owners []plan.Key, wrong map[plan.Key]struct{}, report func(*suspects)) error {
	bySet, places := map[string][]nft.Element{}, map[string][]int{}
	for i := range ops {
		set := ops[i].set
		bySet[set] = append(bySet[set], ops[i].element)
		places[set] = append(places[set], i)
	}
	found := suspects{}
	for set, want := range bySet {
		err := d.reader.Lookup(ctx, t.Table, set, want, func(i int, have *nft.Element) error {
			switch {
			case have != nil && want[i].Same(have):
			case set == hairpin:
				found.add(t.nf, set, &want[i])
			default:
				wrong[owners[places[set][i]]] = struct{}{}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if !found.empty() {
		report(&found)
	}
	return nil
}

// stillWrong reports the frontends that nobody changed since the snapshot was taken.
func (d *Dataplane) stillWrong(ctx context.Context, s *tableSnapshot, wrong map[plan.Key]struct{}, report func(*suspects)) error {
	if len(wrong) == 0 {
		return nil
	}
	found := suspects{}
	err := d.commits.WhenIdle(ctx, func(uint64) {
		if !slices.Contains(d.tables, s.table) {
			return
		}
		var a arena
		for k := range wrong {
			if s.table.frontends[k] == s.frontends[k] {
				found.add(s.table.nf, mapsOf(k).verdict, &nft.Element{Key: a.frontendKey(k)})
			}
		}
	})
	if err == nil && !found.empty() {
		report(&found)
	}
	return err
}

// findSurplus looks in sets for elements that there should not be.
func (d *Dataplane) findSurplus(ctx context.Context, s *tableSnapshot, sets []string, report func(*suspects)) error {
	for _, set := range sets {
		known, found := s.keys(set), suspects{}
		err := d.reader.Elements(ctx, s.table.Table, set, func(e *nft.Element) error {
			if _, ok := known[string(e.Key)]; !ok {
				found.add(s.table.nf, set, e)
			}
			return nil
		})
		// What others write elsewhere does not matter here.
		if err != nil && !errors.Is(err, nft.ErrInterrupted) {
			return err
		}
		if !found.empty() {
			report(&found)
		}
	}
	return nil
}

// keys are those of all elements that a set should have.
func (s *tableSnapshot) keys(set string) map[string]struct{} {
	keys := make(map[string]struct{}, s.expected[set])
	for _, e := range s.members[set] {
		keys[string(e.Key)] = struct{}{}
	}
	if _, shared := s.members[set]; shared {
		return keys
	}
	w := newOpWriter()
	for k, f := range s.frontends {
		w.reset()
		w.difference(k, nil, &f.programmed)
		w.hairpins(f)
		for i := range w.ops {
			if e := &w.ops[i].element; w.ops[i].set == set {
				keys[string(e.Key)] = struct{}{}
			}
		}
	}
	return keys
}
