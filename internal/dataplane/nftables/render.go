package nftables

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Render writes what Reconcile makes in an empty kernel, as nft(8) lists it. The same
// input always gives the same text.
func Render(w io.Writer, desired *plan.Desired, families []model.Family) error {
	return RenderWith(nil, w, desired, families)
}

// RenderWith is Render for a table with a target.
func RenderWith(target *Target, w io.Writer, desired *plan.Desired, families []model.Family) error {
	out := nft.NewListing(w)
	for _, f := range families {
		render(out, f, target, desired)
	}
	return out.Flush()
}

func render(out *nft.Listing, f model.Family, target *Target, desired *plan.Desired) {
	t := newTable(f, tableNames[0], target, dataplane.Count(frontendsOf(f, desired)))
	elements := t.fill(desired)
	out.Table(t.Table, func() {
		for _, s := range t.sets() {
			out.Set(s, elements[s.Name])
		}
		for _, c := range slices.SortedFunc(maps.Keys(t.chains.refs), chain.compare) {
			out.Chain(c.nft(), c.rules(t.layout, &t.settings))
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
		w.difference(pool.Key, nil, &t.compile(pool, nil).programmed)
	}
	for _, k := range slices.SortedFunc(frontendsOf(t.family, desired), plan.Key.Compare) {
		f := t.compile(desired.Frontends[k], nil)
		t.replace(nil, f)
		w.difference(k, nil, &f.programmed)
	}
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
