//go:build linux

package nftables

import (
	"context"
	"maps"
	"slices"

	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// snapshot is a copy of the mirror between two commits.
type snapshot struct {
	commits uint64
	tables  []*tableSnapshot
}

type tableSnapshot struct {
	table     *table
	frontends map[plan.Key]*frontend
	chains    map[string]nft.Chain
	rules     map[string][]uint64
	// members are the keys of sets that frontends share, except hairpins, of which
	// there can be as many as endpoints: they follow from the frontends.
	members map[string][]nft.Element
	// expected is how many elements each set has.
	expected map[string]int
}

// takeSnapshot returns nil while the contents of the kernel are unknown.
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

// count counts how many elements each set should have.
func (s *tableSnapshot) count() {
	for set, keys := range s.members {
		s.expected[set] = len(keys)
	}
	for k, f := range s.frontends {
		f.countElements(mapsOf(k), s.expected)
	}
}

// countElements counts the elements of a frontend by set.
func (p *programmed) countElements(m frontendMaps, into map[string]int) {
	single := func(set string, there bool) {
		if there {
			into[set]++
		}
	}
	single(m.verdict, m.verdict != "" && p.verdict != "")
	single(m.outside, m.outside != "" && p.outside != "")
	single(m.recall, p.recall != "")
	single(m.sticky, p.sticky != "")
	single(m.filters, p.filters)
	into[m.slots] += len(p.slots)
	into[m.outsideSlots] += len(p.outsideSlots)
	into[m.sources] += len(p.sources)
	for _, b := range p.blocks {
		into[rangeBlocks[b.bits]]++
	}
	for _, b := range p.outsideBlocks {
		into[outsideBlocks[b.bits]]++
	}
}

// unchanged reports whether no commit began since the snapshot was taken.
func (d *Dataplane) unchanged(s *snapshot) bool {
	d.commits.Lock()
	defer d.commits.Unlock()
	return !d.commits.Since(s.commits) && slices.Contains(d.tables, s.tables[0].table)
}

func (s *tableSnapshot) sameStructure(have *contents) bool {
	return have.ours && !have.table.Dormant &&
		maps.Equal(s.chains, have.chains) && maps.EqualFunc(s.rules, have.rules, slices.Equal)
}

// differentSizes returns the sets with another number of elements than they should
// have, and those whose number the kernel does not report. Of the latter it leaves out
// those in which surplus elements do no harm: no packet uses a slot beyond the end of
// a pool, or an address that is no endpoint.
func (s *tableSnapshot) differentSizes(counts map[string]int) (sets []string) {
	for _, set := range s.table.presentSets(s.chains) {
		n := counts[set.Name]
		_, slots := slotMaps[set.Name]
		switch {
		case n == s.expected[set.Name]:
		case n < 0 && (slots || set.Name == hairpin):
		default:
			sets = append(sets, set.Name)
		}
	}
	return sets
}

// keys returns the keys of all elements that a set should have.
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
