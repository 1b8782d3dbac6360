//go:build linux

package nftables

import (
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

// table mirrors our table of one family: what it should hold, and what the kernel
// holds of it.
type table struct {
	*layout
	nft.Table
	names  [3]string // that it may have
	exists bool
	// inactive says that the kernel's table is dormant: it ignores packets.
	inactive bool
	// predecessors are tables to remove when this one is complete.
	predecessors []nft.Table

	target    *Target // nil if there is none
	settings  tableSettings
	frontends map[plan.Key]*frontend
	chains    *chains

	hairpins, clusterIPs, nodePortIPs, exclusiveIPs, rangeIPs *nft.Members[netip.Addr]
	// clusterAffine and localAffine are for session affinity, in cluster pools and in
	// local ones.
	clusterAffine, localAffine *affine
	// ranges are the frontends with ranges of ports, by address and protocol; blocks and outsideBlocks count
	// their blocks by length.
	ranges                map[plan.Key]map[plan.Key]*frontend
	blocks, outsideBlocks [portBits + 1]int
	// sticky is the number of frontends with session affinity.
	sticky int
	// users counts the frontends of each pool; unused are pools that lost the last.
	users  map[plan.Key]int
	unused []plan.Key
	// begun are pools of which the commit writes a part only.
	begun map[plan.Key]*item
	// left are the frontends that wait for pools, and for which one.
	left map[plan.Key]plan.Key
	// shared are slots that several frontends of a commit have.
	shared map[sharedSlots][]netip.AddrPort
	// unread are frontends of which the kernel's slots are not known yet. comparing says that Verify has not
	// looked at them.
	unread    map[plan.Key]struct{}
	comparing bool
	// learned is what the kernel holds of those of them that the commit is about.
	learned map[plan.Key]*programmed
	// junk are elements in the kernel that no frontend can have. The first junked are
	// being removed.
	junk   []op
	junked int
}

// frontend is a frontend and how it is programmed.
type frontend struct {
	*plan.Frontend
	programmed
	// moved is the number of the last transaction that replaced elements with counters.
	moved uint64
	begun bool // a pool that is programmed in part
}

// newTable returns an empty mirror, with room for about that many frontends.
func newTable(l *layout, name string, target *Target, frontends int) *table {
	nt := nft.Table{Family: l.nf, Name: name, Comment: tableComment}
	t := &table{
		layout:       l,
		Table:        nt,
		target:       target,
		frontends:    make(map[plan.Key]*frontend, frontends),
		chains:       newChains(),
		users:        map[plan.Key]int{},
		begun:        map[plan.Key]*item{},
		left:         map[plan.Key]plan.Key{},
		shared:       map[sharedSlots][]netip.AddrPort{},
		hairpins:     nft.NewMembers(nt, hairpin, hairpins, frontends),
		clusterIPs:   nft.NewMembers(nt, clusterIPs, addresses, frontends),
		nodePortIPs:  nft.NewMembers(nt, nodePortIPs, addresses, 0),
		exclusiveIPs: nft.NewMembers(nt, exclusiveIPs, addresses, 0),
		rangeIPs:     nft.NewMembers(nt, rangeIPs, addresses, 0),
		ranges:       map[plan.Key]map[plan.Key]*frontend{},

		clusterAffine: newAffine(nt, affinityEndpoints),
		localAffine:   newAffine(nt, localAffinityEndpoints),
	}
	for _, c := range baseChains {
		t.chains.hold(c)
	}
	return t
}

func (t *table) members() []nft.MemberSet {
	return []nft.MemberSet{t.hairpins, t.clusterIPs, t.nodePortIPs, t.exclusiveIPs, t.rangeIPs, t.clusterAffine.endpoints, t.localAffine.endpoints}
}

// compile returns how to program a frontend, with as few changes as possible to what
// the kernel holds now; that is what follows from was, if it is not nil.
func (t *table) compile(f *plan.Frontend, now *programmed, was *frontend) *frontend {
	if now == nil {
		now = &programmed{}
	}
	if was == nil {
		was = &frontend{Frontend: &plan.Frontend{}}
	}
	fe, to := &frontend{Frontend: f}, chainsFor(f, t.target)
	fe.verdict = t.chains.name(to.verdict)
	fe.outside = t.chains.name(to.outside)
	fe.recall = t.chains.name(to.recall)
	fe.sticky = t.chains.name(to.sticky)
	if isPool(f.Key) || ownSlots(&f.Route) {
		fe.slots = t.slots(now.slots, &was.Route, &f.Route)
	}
	if f.Outside != nil && ownSlots(f.Outside) {
		fe.outsideSlots = t.slots(now.outsideSlots, was.Outside, f.Outside)
	}
	if f.Filtered {
		fe.filters, fe.sources = true, f.Sources
	}
	if f.IsRange() {
		if fe.blocks = blocksOf(f.Ports()); f.Outside != nil {
			fe.outsideBlocks = fe.blocks
		}
	}
	return fe
}

// replace replaces references of one frontend to chains and shared elements by those
// of another. Either may be nil.
func (t *table) replace(old, new *frontend) {
	// The new one is first, so that what both need is not given up.
	t.countBlocks(new, 1)
	if new != nil {
		for _, c := range chainsFor(new.Frontend, t.target).all() {
			t.chains.hold(c)
		}
		t.affinity(new, 1)
		if new.Exclusive() {
			t.exclusiveIPs.Hold(new.Addr)
		}
	}
	if old != nil {
		for _, c := range chainsFor(old.Frontend, t.target).all() {
			t.chains.release(c)
		}
		t.affinity(old, -1)
		if old.Exclusive() {
			t.exclusiveIPs.Release(old.Addr)
		}
	}
	t.countBlocks(old, -1)
	t.takeRange(old, new)
	t.usePools(new, 1)
	t.usePools(old, -1)
	before, after := old.hairpins(), new.hairpins()
	for i := range before {
		for gone, come := range plan.DifferentEndpoints(before[i], after[i]) {
			switch {
			case come == nil:
				t.hairpins.Release(gone.Addr())
			case gone == nil:
				t.hairpins.Hold(come.Addr())
			}
		}
	}
	affineBefore, affineAfter := old.affinePools(), new.affinePools()
	for i := range affineBefore {
		t.replaceAffine(affineBefore[i], affineAfter[i])
	}
}

// affinity counts frontends with session affinity, and holds the chains that they need
// while there are any.
func (t *table) affinity(f *frontend, n int) {
	if !remembers(f.Frontend) {
		return
	}
	before := t.sticky
	t.sticky += n
	for _, c := range affinityChains {
		if before == 0 {
			t.chains.hold(c)
		} else if t.sticky == 0 {
			t.chains.release(c)
		}
	}
}

// configure takes over new settings.
func (t *table) configure(desired plan.Settings) {
	s := tableSettings{Settings: desired, blocks: t.settings.blocks}
	if t.target != nil {
		s.target = t.target.Rules(t.family, &desired)
	}
	t.eachNodePortIP(&t.settings.Settings, t.nodePortIPs.Release)
	t.eachNodePortIP(&desired, t.nodePortIPs.Hold)
	switch now, before := len(s.target.Input) > 0, len(t.settings.target.Input) > 0; {
	case now && !before:
		t.chains.hold(t.target.input())
	case before && !now:
		t.chains.release(t.target.input())
	}
	for c, tags := range t.chains.present {
		if !slices.Equal(tags, tagsOf(c.rules(t.layout, &s))) {
			t.chains.rewrite[c] = struct{}{}
		}
	}
	t.settings = s
}

// eachNodePortIP calls f for the addresses in the set of node port addresses. If node
// ports answer on all local addresses, a rule asks the routing table instead.
func (t *table) eachNodePortIP(s *plan.Settings, f func(netip.Addr)) {
	if !s.NodePortAll(t.family) {
		t.eachAddr(slices.Values(s.NodePortIPs), f)
	}
}

// chainRoom and mapRoom are how many elements a chain with its rules, or a map of clients, counts as in
// the limit of a transaction.
const (
	chainRoom = 10
	mapRoom   = 500
)

func (c chain) room() int {
	if c.kind == remembered {
		return mapRoom
	}
	return chainRoom
}

// missing counts what the kernel lacks besides elements of frontends, surplus what is
// no longer needed, up to a limit.
func (t *table) missing(limit int) int {
	n := chainRoom*len(t.chains.rewrite) + len(t.junk)
	for c := range t.chains.missingOrdinary() {
		if n > limit {
			break
		}
		n += c.room()
	}
	for _, m := range t.members() {
		n += m.Missing(limit)
	}
	return n
}

func (t *table) surplus(limit int) int {
	n := chainRoom*nft.CountUpTo(t.chains.surplus(), limit/chainRoom+1) + len(t.chains.foreign) + len(t.chains.emptied)
	for _, m := range t.members() {
		n += m.Surplus(limit)
	}
	return n
}

// prologue writes what elements of frontends refer to, as much as there is room for.
func (t *table) prologue(b *nft.Batch, room int) {
	if t.inactive {
		b.AddTable(t.Table)
	}
	if !t.exists {
		b.AddTable(t.Table)
		for _, s := range t.sets() {
			b.AddSet(t.Table, s)
		}
	}
	t.chains.adding = 0
	for c := range t.chains.missingOrdinary() {
		if room <= 0 {
			break
		}
		t.addChain(b, c)
		t.chains.adding++
		room -= c.room()
	}
	t.chains.rewriting = nil
	for c := range t.chains.rewrite {
		if room <= 0 {
			break
		}
		if c.base() {
			b.AddChain(t.Table, c.nft()) // sets the policy of the existing chain
		}
		b.FlushChain(t.Table, c.name())
		t.addRules(b, c)
		t.chains.rewriting = append(t.chains.rewriting, c)
		room -= chainRoom
	}
	t.junked = max(min(room, len(t.junk)), 0)
	for i := range t.junk[:t.junked] {
		b.DeleteElement(t.Table, t.junk[i].set, &t.junk[i].element, 0)
	}
	room -= t.junked
	for _, m := range t.members() {
		room -= m.Add(b, room)
	}
}

func (t *table) addChain(b *nft.Batch, c chain) {
	if c.kind == remembered {
		t.addClientMap(b, c.clientMap().name())
		return
	}
	if c.kind == rangeSet {
		b.AddSet(t.Table, t.rangeSets()[c.part])
		return
	}
	b.AddChain(t.Table, c.nft())
	t.addRules(b, c)
}

func (t *table) addRules(b *nft.Batch, c chain) {
	for _, r := range c.rules(t.layout, &t.settings) {
		b.AddRule(t.Table, r)
	}
}

// prologueDone records that the prologue took effect.
func (t *table) prologueDone() {
	t.exists, t.inactive = true, false
	for c := range t.chains.missingOrdinary() {
		if t.chains.adding--; t.chains.adding < 0 {
			break
		}
		t.chains.found(c, tagsOf(c.rules(t.layout, &t.settings)))
	}
	for _, c := range t.chains.rewriting {
		t.chains.found(c, tagsOf(c.rules(t.layout, &t.settings)))
		delete(t.chains.rewrite, c)
	}
	t.chains.rewriting = nil
	t.junk = t.junk[t.junked:]
	for _, m := range t.members() {
		m.Added()
	}
}

// epilogue adds base chains, which let packets in, and removes what nothing refers to
// any more, as much as there is room for.
func (t *table) epilogue(b *nft.Batch, room int) {
	for c := range t.chains.missing() {
		if c.base() {
			t.addChain(b, c)
		}
	}
	for _, m := range t.members() { // before sets of theirs
		room -= m.Remove(b, room)
	}
	t.removeChains(b, room)
	for _, old := range t.predecessors {
		b.DeleteTable(old)
	}
}

// removeChains removes foreign chains, and surplus ones of ours.
func (t *table) removeChains(b *nft.Batch, room int) {
	c, used := t.chains, 0
	c.emptying, c.deleting, c.removing = nil, nil, 0
	for name := range c.foreign {
		if used >= room {
			return
		}
		c.emptying = append(c.emptying, name)
		if !strings.HasPrefix(name, mapMark) {
			b.FlushChain(t.Table, name)
		}
		used++
	}
	for _, name := range slices.AppendSeq(c.emptying, maps.Keys(c.emptied)) {
		if used >= room {
			return
		}
		c.deleting = append(c.deleting, name)
		t.deleteChain(b, name)
		used++
	}
	for s := range c.surplus() {
		if used >= room {
			break
		}
		if !s.isSet() {
			b.FlushChain(t.Table, c.name(s))
		}
		t.deleteChain(b, c.name(s))
		c.removing++
		used += chainRoom
	}
}

// deleteChain removes a chain, or a map of clients.
func (t *table) deleteChain(b *nft.Batch, name string) {
	if set, is := strings.CutPrefix(name, mapMark); is {
		b.DeleteSet(t.Table, set)
	} else {
		b.DeleteChain(t.Table, name)
	}
}

// epilogueDone records that the epilogue took effect.
func (t *table) epilogueDone() {
	for c := range t.chains.missing() {
		t.chains.found(c, tagsOf(c.rules(t.layout, &t.settings)))
	}
	t.chains.removed()
	for _, m := range t.members() {
		m.Removed()
	}
	t.predecessors = nil
}

func tagsOf(rules []nft.Rule) []uint64 {
	tags := make([]uint64, len(rules))
	for i, r := range rules {
		tags[i] = r.Tag
	}
	return tags
}

// eachAddr calls f for the addresses of the table's family.
func (t *table) eachAddr(ips iter.Seq[netip.Addr], f func(netip.Addr)) {
	for ip := range dataplane.OfFamily(t.family, model.FamilyOf, ips) {
		f(ip)
	}
}
