//go:build linux

package nftables

import (
	"maps"
	"slices"

	"sluice/internal/kernel/nft"
)

// mirror is what the kernel has of a table: its chains, and the elements of those sets that are small.
type mirror struct {
	nft.Table
	exists bool
	chains map[string][]uint64          // the tags of their rules
	sets   map[string]map[string]string // of each set the keys, with the data, or the chain of the verdict
}

func newMirror(f nft.Family, name string) *mirror {
	m := &mirror{Table: nft.Table{Family: f, Name: name, Comment: tableComment}}
	m.reset()
	return m
}

func (m *mirror) reset() {
	m.exists, m.chains, m.sets = false, map[string][]uint64{}, map[string]map[string]string{}
}

// create writes the table with its sets, if it is not there.
func (m *mirror) create(b *nft.Batch, sets []*nft.Set) {
	if m.exists {
		return
	}
	b.AddTable(m.Table)
	for _, s := range sets {
		b.AddSet(m.Table, s)
		m.sets[s.Name] = map[string]string{}
	}
	m.exists = true
}

// setChains writes chains, all of which are there before any rule leads to one. A base chain that is
// new is the last one.
func (m *mirror) setChains(b *nft.Batch, chains []directChain) {
	for _, c := range chains {
		if _, there := m.chains[c.Name]; !there && c.Type == "" {
			b.AddChain(m.Table, c.Chain)
		}
	}
	for _, c := range chains {
		tags, there := m.chains[c.Name]
		want := tagsOf(c.rules)
		if there && slices.Equal(tags, want) {
			continue
		}
		switch {
		case there:
			b.FlushChain(m.Table, c.Name)
		case c.Type != "":
			b.AddChain(m.Table, c.Chain)
		}
		for _, r := range c.rules {
			b.AddRule(m.Table, r)
		}
		m.chains[c.Name] = want
	}
}

// removeChains removes chains, none of which is in use by others.
func (m *mirror) removeChains(b *nft.Batch, names []string) {
	names = slices.DeleteFunc(names, func(name string) bool {
		_, there := m.chains[name]
		return !there
	})
	for _, name := range names {
		b.FlushChain(m.Table, name)
	}
	for _, name := range names {
		b.DeleteChain(m.Table, name)
		delete(m.chains, name)
	}
}

// put adds or replaces an element of a small set. The value is the name of a chain for
// maps of verdicts.
func (m *mirror) put(b *nft.Batch, set, key, value string, verdicts bool) {
	before, there := m.sets[set][key]
	if there && before == value {
		return
	}
	e := nft.Element{Key: []byte(key)}
	if there {
		b.DeleteElement(m.Table, set, &e, 0)
	}
	switch {
	case verdicts:
		e.Verdict = nft.Goto(value)
	case value != "":
		e.Data = []byte(value)
	}
	b.AddElement(m.Table, set, &e, 0)
	m.sets[set][key] = value
}

func (m *mirror) drop(b *nft.Batch, set, key string) {
	if _, there := m.sets[set][key]; there {
		b.DeleteElement(m.Table, set, &nft.Element{Key: []byte(key)}, 0)
		delete(m.sets[set], key)
	}
}

// add adds to a set what it lacks, and retain removes what it need not have.
func (m *mirror) add(b *nft.Batch, set string, want map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		m.put(b, set, key, want[key], false)
	}
}

func (m *mirror) retain(b *nft.Batch, set string, want map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(m.sets[set])) {
		if _, keep := want[key]; !keep {
			m.drop(b, set, key)
		}
	}
}
