//go:build linux

package nftables

import (
	"context"
	"errors"
	"slices"
	"time"

	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// Verify compares what a restart put off, and then the kernel with the mirror, unless it is known that no other
// program wrote to our tables since the last time. Differences are left to Repair.
func (d *Dataplane) Verify(ctx context.Context) (bool, error) {
	return d.verify(ctx, d.readRest)
}

// verify is Verify, which begins with first.
func (d *Dataplane) verify(ctx context.Context, first func(context.Context, func(*foreignWrites)) error) (bool, error) {
	select {
	case d.verifying <- struct{}{}:
		defer func() { <-d.verifying }()
	case <-ctx.Done():
		return true, ctx.Err()
	}
	good := true
	report := func(found *foreignWrites) {
		if !found.empty() {
			good = false
			d.monitor.report(func(w *foreignWrites) { w.join(found) })
		}
	}
	if err := first(ctx, report); err != nil {
		return true, err
	}
	missed, known := d.monitor.countMissed()
	if known && missed == d.verified {
		return good, nil
	}
	if err := d.check(ctx, report); err != nil {
		return true, err
	}
	d.verified = missed
	return good, nil
}

const (
	// verifyShare is the ratio of pauses to time spent on comparing: it takes a
	// three-hundredth of a core, however large the tables are and however often
	// others write.
	verifyShare = 300
	// verifySlice is how long to compare before a pause.
	verifySlice = 5 * time.Millisecond
	// verifyPeriod is the shortest time between two comparisons.
	verifyPeriod = time.Second
)

// verifyMissed verifies in the background when foreign writes may have been missed.
func (d *Dataplane) verifyMissed(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-d.monitor.missed:
		}
		_, err := d.verify(ctx, func(context.Context, func(*foreignWrites)) error { return nil })
		if err != nil && ctx.Err() == nil {
			d.logger.V(1).Info("Cannot tell whether other programs changed our nftables tables", "reason", err.Error())
			d.monitor.missed.Notify()
		}
		sleep(ctx, verifyPeriod)
	}
}

// throttle limits comparing to its share of the time.
type throttle struct {
	off   bool
	since time.Time
}

func (t *throttle) pause(ctx context.Context) {
	if spent := time.Since(t.since); !t.off && spent > verifySlice {
		sleep(ctx, verifyShare*spent)
		t.since = time.Now()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// structureTries is how often the structure of the tables is read again because of a
// commit meanwhile.
const structureTries = 10

// check compares the kernel with the mirror, concurrently with commits, and reports
// differences, which may be none, perhaps also false ones in what a commit changes meanwhile. First it
// compares what is read fast: chains, rules, and the number of elements. Then it
// compares all elements, throttled if no difference was found so far.
func (d *Dataplane) check(ctx context.Context, report func(*foreignWrites)) error {
	s, structures, quiet, err := d.readStructures(ctx)
	if s == nil || err != nil {
		return err
	}
	for i, t := range s.tables {
		have := structures[i]
		if !quiet || !t.sameStructure(have) {
			report(&foreignWrites{structure: true}) // Repair reads it again, between two commits
		}
		if !have.ours {
			continue
		}
		sets := t.differentSizes(have.counts)
		if err := d.checkElements(ctx, t, quiet && len(sets) > 0, report); err != nil {
			return err
		}
		if !quiet {
			continue
		}
		if err := d.findSurplus(ctx, t, sets, report); err != nil {
			return err
		}
	}
	return nil
}

// readStructures reads everything but the elements. quiet says that no commit was in
// progress meanwhile.
func (d *Dataplane) readStructures(ctx context.Context) (s *snapshot, list []*contents, quiet bool, err error) {
	for try := 0; try < structureTries && !quiet; try++ {
		if s, err = d.takeSnapshot(ctx); s == nil || err != nil {
			return nil, nil, false, err
		}
		list = nil
		for _, t := range s.tables {
			have, err := t.table.readStructure(ctx, d.reader)
			if err != nil {
				return nil, nil, false, err
			}
			list = append(list, have)
		}
		quiet = d.unchanged(s)
	}
	return s, list, quiet, nil
}

// lookupChunk is about how many elements are looked up at a time.
const lookupChunk = 4_000

// checkElements looks up all elements that there should be, throttled unless fast.
func (d *Dataplane) checkElements(ctx context.Context, s *tableSnapshot, fast bool, report func(*foreignWrites)) error {
	t, throttle := s.table, throttle{off: fast, since: time.Now()}
	for set, all := range s.members {
		for keys := range slices.Chunk(all, lookupChunk) {
			found := foreignWrites{}
			err := d.reader.Lookup(ctx, t.Table, set, keys, func(i int, e *nft.Element) error {
				if e == nil {
					found.add(t.nf, set, &keys[i])
				}
				return nil
			})
			if err != nil {
				return err
			}
			report(&found)
			throttle.pause(ctx)
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
		if len(w.ops) < lookupChunk {
			continue
		}
		if err := d.checkOps(ctx, t, w.ops, owners, wrong, report); err != nil {
			return err
		}
		w.reset()
		owners = owners[:0]
		throttle.pause(ctx)
	}
	if err := d.checkOps(ctx, t, w.ops, owners, wrong, report); err != nil {
		return err
	}
	return d.stillWrong(ctx, s, wrong, report)
}

// hairpins appends the addition of a frontend's hairpins.
func (w *opWriter) hairpins(f *frontend) {
	for _, pool := range f.hairpins() {
		for _, e := range pool {
			w.put(hairpin, hairpinKey(&w.arena.Arena, e.Addr()), nft.Element{}, false, true)
		}
	}
}

// checkOps looks up the elements that operations would add. It reports missing
// hairpins, and adds frontends that differ to wrong.
func (d *Dataplane) checkOps(ctx context.Context, t *table, ops []op, owners []plan.Key, wrong map[plan.Key]struct{}, report func(*foreignWrites)) error {
	bySet, indexes := map[string][]nft.Element{}, map[string][]int{}
	for i := range ops {
		set := ops[i].set
		bySet[set] = append(bySet[set], ops[i].element)
		indexes[set] = append(indexes[set], i)
	}
	found := foreignWrites{}
	for set, want := range bySet {
		err := d.reader.Lookup(ctx, t.Table, set, want, func(i int, have *nft.Element) error {
			switch {
			case have != nil && want[i].Same(have):
			case set == hairpin:
				found.add(t.nf, set, &want[i])
			default:
				wrong[owners[indexes[set][i]]] = struct{}{}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	report(&found)
	return nil
}

// stillWrong reports the frontends that no commit changed since the snapshot.
func (d *Dataplane) stillWrong(ctx context.Context, s *tableSnapshot, wrong map[plan.Key]struct{}, report func(*foreignWrites)) error {
	if len(wrong) == 0 {
		return nil
	}
	found := foreignWrites{}
	err := d.commits.WhenIdle(ctx, func(uint64) {
		if !slices.Contains(d.tables, s.table) {
			return
		}
		var a arena
		for k := range wrong {
			if s.table.frontends[k] == s.frontends[k] {
				switch m := mapsOf(k); {
				case isPool(k):
					found.add(s.table.nf, m.slots, &nft.Element{Key: a.slotKey(k, 0)})
				case k.IsRange():
					b := blocksOf(k.Ports())[0]
					found.add(s.table.nf, rangeBlocks[b.bits], &nft.Element{Key: a.blockKey(k, b)})
				default:
					found.add(s.table.nf, m.verdict, &nft.Element{Key: a.frontendKey(k)})
				}
			}
		}
	})
	report(&found)
	return err
}

// findSurplus reports elements of sets that should not be there.
func (d *Dataplane) findSurplus(ctx context.Context, s *tableSnapshot, sets []string, report func(*foreignWrites)) error {
	for _, set := range sets {
		known, found := s.keys(set), foreignWrites{}
		err := d.reader.Elements(ctx, s.table.Table, set, func(e *nft.Element) error {
			if _, ok := known[string(e.Key)]; !ok {
				found.add(s.table.nf, set, e)
			}
			return nil
		})
		// Writes to other tables do not matter.
		if err != nil && !errors.Is(err, nft.ErrInterrupted) {
			return err
		}
		report(&found)
	}
	return nil
}
