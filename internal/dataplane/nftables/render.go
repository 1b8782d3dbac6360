//go:build linux

package nftables

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// Render writes what Reconcile makes in an empty kernel, as nft(8) lists it. The same
// input always gives the same text.
func Render(w io.Writer, desired *plan.Desired, o dataplane.RenderOptions) error {
	return RenderWith(nil, w, desired, o)
}

// RenderWith is Render for a table with a target.
func RenderWith(target *Target, w io.Writer, desired *plan.Desired, o dataplane.RenderOptions) error {
	out := nft.NewListing(w)
	for _, f := range o.Families {
		l := layoutFor(f, o.Uncounted)
		render(out, newTable(l, tableNamesOf(o.Instance)[0], target, dataplane.Count(frontendsOf(f, desired))), desired)
	}
	return out.Flush()
}

func render(out *nft.Listing, t *table, desired *plan.Desired) {
	elements := t.fill(desired)
	out.Table(t.Table, func() {
		for _, s := range t.sets() {
			out.Set(s, elements[s.Name])
		}
		all := slices.SortedFunc(maps.Keys(t.chains.refs), chain.compare)
		for _, c := range all {
			switch c.kind {
			case remembered:
				out.Set(t.clientMap(c.clientMap().name()), nil)
			case rangeSet:
				s := t.rangeSets()[c.part]
				out.Set(s, elements[s.Name])
			}
		}
		for _, c := range all {
			if !c.isSet() {
				out.Chain(c.nft(), c.rules(t.layout, &t.settings))
			}
		}
	})
}

// fill fills an empty table with what is desired, and returns the elements by set,
// sorted.
func (t *table) fill(desired *plan.Desired) map[string][]nft.Element {
	t.configure(desired.Settings)
	t.eachAddr(maps.Keys(desired.ClusterIPs), t.clusterIPs.Hold)
	w := newOpWriter()
	all := dataplane.OfFamily(t.family, (*plan.Frontend).Family, maps.Values(desired.Frontends))
	byKey := func(a, b *plan.Frontend) int { return a.Key.Compare(b.Key) }
	for _, pool := range slices.SortedFunc(t.pools(all), byKey) {
		w.difference(pool.Key, nil, &t.compile(pool, nil, nil).programmed)
	}
	for _, k := range slices.SortedFunc(frontendsOf(t.family, desired), plan.Key.Compare) {
		f := t.compile(desired.Frontends[k], nil, nil)
		t.replace(nil, f)
		w.difference(k, nil, &f.programmed)
	}
	t.followRanges()
	elements := map[string][]nft.Element{}
	for _, o := range w.ops {
		elements[o.set] = append(elements[o.set], o.element)
	}
	for _, m := range t.members() {
		elements[m.Name()] = m.Wanted()
	}
	return elements
}

// compare sorts chains about in the order in which packets reach them.
func (c chain) compare(o chain) int {
	return cmp.Or(cmp.Compare(c.kind, o.kind), cmp.Compare(c.size, o.size), cmp.Compare(c.seconds, o.seconds),
		strings.Compare(c.name(), o.name()))
}
