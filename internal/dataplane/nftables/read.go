//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// contents is the contents of one of our tables in the kernel.
type contents struct {
	table nft.Table
	// ours says that the sets and base chains are as in our layout, and that it is the
	// table that was asked for.
	ours      bool
	chains    map[string]nft.Chain
	rules     map[string][]uint64 // tags by chain
	counts    map[string]int      // elements by set, -1 if the kernel does not report it
	frontends map[plan.Key]*programmed
	members   map[string][]nft.Element // keys of sets that frontends share
	// manyHairpins is their number if there are too many to dump: they are looked up
	// when it is known which are needed.
	manyHairpins int
	// unread says that slots and hairpins are read later.
	unread bool
	// junk are elements that no frontend can have.
	junk []op
}

// maxSlot is the highest index of a slot that can be ours.
const maxSlot = 1 << 22

// matches reports whether these are exactly the sets of our layout, besides maps of clients.
func (l *layout) matches(have []nft.SetInfo) bool {
	want := l.sets()
	if len(have) != len(want) {
		return false
	}
	for _, s := range want {
		i := slices.IndexFunc(have, func(i nft.SetInfo) bool { return i.Name == s.Name })
		if i < 0 || !s.Matches(have[i]) {
			return false
		}
	}
	return true
}

// hooksAreOurs reports whether base chains with our names have our hooks. A base chain
// cannot be moved to another hook; its policy can be repaired.
func (k *contents) hooksAreOurs(target *Target) bool {
	for _, c := range slices.Concat(baseChains, affinityChains, []chain{target.input()}) {
		found, there := k.chains[c.name()]
		if found.Drops = false; there && found != c.nft() {
			return false
		}
	}
	return true
}

// readStructure reads everything of a table but its elements.
func readStructure(ctx context.Context, c *nft.Conn, l *layout, target *Target, t nft.Table) (*contents, error) {
	k := &contents{table: t, chains: map[string]nft.Chain{}, rules: map[string][]uint64{}, counts: map[string]int{},
		frontends: map[plan.Key]*programmed{}, members: map[string][]nft.Element{}}
	chains, err := c.Chains(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, ch := range chains {
		k.chains[ch.Name] = ch
	}
	rules, err := c.Rules(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		k.rules[r.Chain] = append(k.rules[r.Chain], r.Tag)
	}
	sets, err := c.Sets(ctx, t)
	for _, s := range sets {
		k.counts[s.Name] = s.Count
	}
	sets, ours := k.takeClientMaps(l, sets)
	sets, rangesOurs := k.takeRangeSets(l, sets)
	k.ours = ours && rangesOurs && l.matches(sets) && k.hooksAreOurs(target)
	return k, err
}

// A hash table of the kernel that grows or shrinks in the background is dumped with
// some elements twice and others not at all, without a warning. That takes little time:
// what is inconsistent is read again.
const (
	readTries = 100
	readPause = 20 * time.Millisecond
)

// retry calls read again, after a pause, while what it reads changes.
func retry(ctx context.Context, t nft.Table, pause time.Duration, read func() error) error {
	for range readTries {
		if err := read(); !errors.Is(err, nft.ErrInterrupted) {
			return err
		}
		if sleep(ctx, pause); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("table %s %s: %w", t.Family, t.Name, nft.ErrInterrupted)
}

// readContents reads a table, except the affinity of clients; nil if it does not have our
// layout. slots guesses how many endpoints a frontend has; if it is nil everything is dumped.
//
// Others may write to nftables meanwhile: writes to our table are detected, and repaired
// afterwards.
func (d *Dataplane) readContents(ctx context.Context, c *nft.Conn, l *layout, t nft.Table, slots *slotGuess) (k *contents, err error) {
	err = retry(ctx, t, readPause, func() error {
		if k, err = readStructure(ctx, c, l, d.target, t); err != nil || !k.ours {
			return err
		}
		return readElements(ctx, c, l, k, slots)
	})
	if err != nil || !k.ours {
		return nil, err
	}
	return k, nil
}

func readElements(ctx context.Context, c *nft.Conn, l *layout, k *contents, slots *slotGuess) error {
	r := newReader(l, k)
	k.unread = slots.putsOff(k.counts)
	for _, s := range l.presentSets(k.chains) { // frontends come before their slots
		n := k.counts[s.Name]
		if k.unread && (s.Name == hairpin || slices.Contains(laterSets, s.Name)) {
			continue
		}
		if s.Name == hairpin && n > maxDump && slots != nil {
			k.manyHairpins = n
			continue
		}
		if ok, err := r.readSet(ctx, c, k.table, s.Name, n, slots); err != nil {
			return err
		} else if !ok {
			return nft.ErrInterrupted
		}
	}
	return nil
}

// readSet reads a set and reports whether it saw each element once.
func (r *reader) readSet(ctx context.Context, c *nft.Conn, t nft.Table, set string, count int, slots *slotGuess) (bool, error) {
	take := r.forSet(set)
	if take == nil {
		return true, nil
	}
	if _, is := slotMaps[set]; is && count > maxDump && slots != nil {
		if all, err := r.readSlots(ctx, c, t, set, count, slots); all || err != nil {
			return all, err
		}
	}
	clear(r.seen)
	r.twice = false
	first, err := sumElements(ctx, c, t, set, func(e *nft.Element) {
		if !take(e) && !r.again(string(e.Key)) {
			r.notOurs(set, e)
		}
	})
	if err != nil || r.twice {
		return false, err
	}
	if count >= 0 {
		return first.count == count, nil
	}
	second, err := sumElements(ctx, c, t, set, func(*nft.Element) {})
	return first == second, err
}

// notOurs records an element that no frontend can have.
func (r *reader) notOurs(set string, e *nft.Element) {
	r.junk = append(r.junk, junkOf(set, e))
}

func junkOf(set string, e *nft.Element) op {
	return op{set: set, remove: true, element: nft.Element{Key: slices.Clone(e.Key)}}
}

// sum is equal for two dumps with the same elements, in any order.
type sum struct {
	count int
	hash  uint64
}

var sumSeed = maphash.MakeSeed()

func sumElements(ctx context.Context, c *nft.Conn, t nft.Table, set string, f func(*nft.Element)) (sum, error) {
	var s sum
	err := c.Elements(ctx, t, set, func(e *nft.Element) error {
		s.count++
		s.hash += maphash.Bytes(sumSeed, e.Key)
		f(e)
		return nil
	})
	if errors.Is(err, nft.ErrInterrupted) {
		err = nil // the sum shows whether it matters
	}
	return s, err
}

func newReader(l *layout, k *contents) *reader {
	return &reader{layout: l, contents: k, names: map[string]string{}, seen: map[string]struct{}{}}
}

// reader sorts elements into contents.
type reader struct {
	*layout
	*contents
	names map[string]string // one copy of each chain name
	// twice says that an element of the current set came twice; seen are keys, for
	// sets where nothing else shows that.
	twice bool
	seen  map[string]struct{}
}

// again records a key and reports whether it came before.
func (r *reader) again(key string) bool {
	_, before := r.seen[key]
	r.seen[key] = struct{}{}
	r.twice = r.twice || before
	return before
}

// forSet returns a function that takes an element of a set, and reports whether it can
// be ours.
func (r *reader) forSet(set string) func(*nft.Element) bool {
	of := frontendSets[set]
	switch set {
	case services, nodePorts:
		return r.verdict(of, func(p *programmed, e *nft.Element) *string {
			p.packets, p.bytes = e.Packets, e.Bytes
			return &p.verdict
		})
	case outside, nodePortOutside:
		return r.verdict(of, func(p *programmed, e *nft.Element) *string {
			p.outsidePackets = e.Packets
			return &p.outside
		})
	case recalls, nodePortRecalls:
		return r.recall(of)
	case sticky, nodePortSticky:
		return r.verdict(of, func(p *programmed, _ *nft.Element) *string { return &p.sticky })
	case endpoints, nodePortEndpoints, rangeEndpoints:
		return r.slot(of, frontendOf(of), func(p *programmed) *[]netip.AddrPort { return &p.slots })
	case localEndpoints, nodePortLocal, rangeLocalEndpoints:
		return r.slot(of, frontendOf(of), func(p *programmed) *[]netip.AddrPort { return &p.outsideSlots })
	case pools:
		return r.slot(of, (*decoder).pool, func(p *programmed) *[]netip.AddrPort { return &p.slots })
	case sources, rangeSources:
		return r.source(of)
	case filters, rangeFilters:
		return r.filter(of)
	case hairpin, clusterIPs, nodePortIPs, exclusiveIPs, rangeIPs, affinityEndpoints, localAffinityEndpoints:
		return r.member(set)
	}
	if m, is := blockMapsByName[set]; is {
		return r.block(m)
	}
	return nil
}

func (r *reader) frontend(k plan.Key) *programmed {
	p := r.frontends[k]
	if p == nil {
		p = &programmed{}
		r.frontends[k] = p
	}
	return p
}

func (r *reader) verdict(of keyKind, field func(*programmed, *nft.Element) *string) func(*nft.Element) bool {
	return func(e *nft.Element) bool {
		d := r.decode(e.Key)
		k := d.frontend(of)
		if !d.Done() || e.Verdict == nil {
			return false
		}
		name := field(r.frontend(k), e)
		r.twice = r.twice || *name != ""
		*name = r.verdictName(e.Verdict)
		return true
	}
}

// recall is verdict for elements that jump.
func (r *reader) recall(of keyKind) func(*nft.Element) bool {
	take := r.verdict(of, func(p *programmed, _ *nft.Element) *string { return &p.recall })
	return func(e *nft.Element) bool {
		if v := e.Verdict; v != nil && v.Code == nft.JumpCode {
			e.Verdict = nft.Goto(v.Chain)
		} else if v != nil && v.Code == nft.GotoCode {
			e.Verdict = &nft.Verdict{Code: nft.JumpCode} // never ours here
		}
		return take(e)
	}
}

// verdictName returns the name of a verdict as in programmed. A verdict that we never
// write gets a name that no chain can have, and will be replaced.
func (r *reader) verdictName(v *nft.Verdict) string {
	name := verdictName(v)
	if known, ok := r.names[name]; ok {
		return known
	}
	r.names[name] = name
	return name
}

// verdictName returns the chain that a verdict leads to, or dropName or passName.
func verdictName(v *nft.Verdict) string {
	switch v.Code {
	case nft.DropCode:
		return dropName
	case nft.AcceptCode:
		return passName
	case nft.GotoCode:
		return v.Chain
	}
	return "?"
}

// frontendOf reads the frontend from a key.
func frontendOf(of keyKind) func(*decoder) plan.Key {
	return func(d *decoder) plan.Key { return d.frontend(of) }
}

func (r *reader) slot(of keyKind, owner func(*decoder) plan.Key, slots func(*programmed) *[]netip.AddrPort) func(*nft.Element) bool {
	return func(e *nft.Element) bool {
		d := r.decode(e.Key)
		k, i := owner(d), d.index()
		v := r.decode(e.Data)
		ep := v.target(of)
		if !d.Done() || !v.Done() || i > maxSlot {
			return false
		}
		s := slots(r.frontend(k))
		for len(*s) <= i {
			*s = append(*s, netip.AddrPort{})
		}
		r.twice = r.twice || (*s)[i].IsValid()
		(*s)[i] = ep
		return true
	}
}

func (r *reader) source(of keyKind) func(*nft.Element) bool {
	return func(e *nft.Element) bool {
		d := r.decode(e.Key)
		k, p := d.source(of)
		if !d.Done() {
			return false
		}
		if f := r.frontend(k); !r.again(string(e.Key)) {
			f.sources = append(f.sources, p)
		}
		return true
	}
}

func (r *reader) filter(of keyKind) func(*nft.Element) bool {
	return func(e *nft.Element) bool {
		d := r.decode(e.Key)
		k := d.frontend(of)
		if !d.Done() || of != byRange && r.nameOf(e) != dropName {
			return false
		}
		p := r.frontend(k)
		r.twice = r.twice || p.filters
		p.filters, p.filteredPackets = true, e.Packets
		return true
	}
}

// member is forSet for a set that frontends share.
func (r *reader) member(set string) func(*nft.Element) bool {
	return func(e *nft.Element) bool {
		if !r.again(string(e.Key)) {
			r.members[set] = append(r.members[set], nft.Element{Key: slices.Clone(e.Key)})
		}
		return true
	}
}
