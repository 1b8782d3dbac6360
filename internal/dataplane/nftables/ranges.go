//go:build linux

package nftables

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// A range of ports is split into blocks, as a range of addresses is into prefixes: the ports of a block
// have their first bits in common. Blocks are elements of a hash table, where adding, finding and
// removing one takes constant time, which with the kernel's interval sets follows their size. A packet
// to an address with ranges, and to none of its single ports, is looked up once for each length of
// blocks.
//
// A block leads to a chain that is for the range, in which the number of the range takes the place of the
// port: in the other maps, a range has elements as a single port has in others. When a verdict changes, the
// kernel validates all chains of the table again, and for each of their rules all verdicts of its map.
// So there is a map for each length of blocks, and no chain of a range has a map of verdicts.

// The sets and maps of ranges. They exist while there is a range, rangeBlocks and outsideBlocks of a length
// while there is a block of it.
const (
	rangeIPs            = "range-ips"
	rangeEndpoints      = "range-endpoints"
	rangeLocalEndpoints = "range-local-endpoints"
	rangeSources        = "range-sources"
	rangeFilters        = "range-filters"
)

// rangeBlocks are the maps of blocks by their length, and outsideBlocks those for clients from outside,
// where these have verdicts of their own.
var rangeBlocks, outsideBlocks = blockMapsOf("ranges"), blockMapsOf("range-outside")

type blockMaps [portBits + 1]string

func blockMapsOf(name string) (m blockMaps) {
	for bits := range m {
		m[bits] = fmt.Sprintf("%s-%d", name, bits)
	}
	return m
}

// blockMap is one of them.
type blockMap struct {
	bits    uint8
	outside bool
}

// blockMapsByName are all of them.
var blockMapsByName = func() map[string]blockMap {
	all := map[string]blockMap{}
	for bits := range uint8(portBits + 1) {
		all[rangeBlocks[bits]], all[outsideBlocks[bits]] = blockMap{bits, false}, blockMap{bits, true}
	}
	return all
}()

// blockLengths are the lengths of blocks that there are, with a bit for each.
type blockLengths [2]uint32

// of returns those of the blocks for clients from outside, or of the others.
func (l *blockLengths) of(outside bool) *uint32 {
	if outside {
		return &l[1]
	}
	return &l[0]
}

func (l *blockLengths) some() bool { return l[0] != 0 }

// rangeSets returns the sets that exist while there are ranges.
func (l *layout) rangeSets() []*nft.Set {
	typeof := func(parts ...nft.Value) nft.Type { return nft.Type{Parts: parts, Typeof: true} }
	number := nft.Random(1 << 16)
	slot := typeof(l.dest, nft.Protocol, number, number)
	endpoint := typeof(l.dest)
	all := []*nft.Set{
		{Name: rangeIPs, Key: nft.Type{Parts: nft.Concat{l.dest}}},
		{Name: rangeEndpoints, Key: slot, Data: endpoint},
		{Name: rangeLocalEndpoints, Key: slot, Data: endpoint},
		{Name: rangeSources, Key: typeof(l.dest, number, l.source, number)},
		{Name: rangeFilters, Key: typeof(l.dest, nft.Protocol, number), Counter: !l.uncounted},
	}
	for _, name := range rangeSetNames[len(all):] {
		all = append(all, &nft.Set{Name: name, Key: typeof(l.dest, nft.Protocol, nft.DestPort), Data: nft.VerdictType, Counter: !l.uncounted})
	}
	return all
}

// rangeSet returns the set of that name, nil if it is none of ranges.
func (l *layout) rangeSet(name string) *nft.Set {
	all := l.rangeSets()
	if i := slices.IndexFunc(all, func(s *nft.Set) bool { return s.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// rangeSetNames are in the order in which the sets are created.
var rangeSetNames = slices.Concat([]string{rangeIPs, rangeEndpoints, rangeLocalEndpoints, rangeSources, rangeFilters}, rangeBlocks[:], outsideBlocks[:])

// rangeSetObject describes a set of ranges for the mirror, which has it among the chains.
func rangeSetObject(name string) chain {
	return chain{kind: rangeSet, part: uint8(slices.Index(rangeSetNames, name))}
}

// isSet reports whether it is not a chain but a set, or a map of clients.
func (c chain) isSet() bool { return c.kind == remembered || c.kind == rangeSet }

// eachRangeSet calls f with the objects of the sets that any range needs.
func eachRangeSet(f func(chain)) {
	for _, name := range rangeSetNames {
		if _, is := blockMapsByName[name]; !is {
			f(rangeSetObject(name))
		}
	}
}

// takeRangeSets puts sets of ranges among the chains that were read, and returns the other sets. It
// reports whether they are as in our layout.
func (k *contents) takeRangeSets(l *layout, have []nft.SetInfo) (rest []nft.SetInfo, ours bool) {
	ours = true
	rest = slices.DeleteFunc(have, func(i nft.SetInfo) bool {
		s := l.rangeSet(i.Name)
		if s == nil {
			return false
		}
		ours = ours && s.Matches(i)
		name := mapMark + i.Name
		k.chains[name] = nft.Chain{Name: name}
		return true
	})
	return rest, ours
}

// presentSets returns all sets with elements that are followed.
func (l *layout) presentSets(chains map[string]nft.Chain) []*nft.Set {
	all := l.sets()
	for _, s := range l.rangeSets() {
		if _, there := chains[mapMark+s.Name]; there {
			all = append(all, s)
		}
	}
	return all
}

// rangeNumber is the number of a range in keys.
func rangeNumber(r model.PortRange) uint32 { return uint32(r.First)<<16 | uint32(r.Last) }

// rangeOf reads the number of a range into a key.
func (d *decoder) rangeOf(k *plan.Key) {
	n := d.Word()
	k.Port, k.Last = uint16(n>>16), uint16(n)
	d.Check(k.Port > 0 && k.Port <= k.Last)
}

// portBlock is the ports whose first bits are those of a port.
type portBlock struct {
	port uint16
	bits uint8
}

const portBits = 16

// blocksOf returns the blocks of a range, as few as possible.
func blocksOf(r model.PortRange) (out []portBlock) {
	for first, end := uint32(r.First), uint32(r.Last)+1; first < end; {
		size := min(bits.TrailingZeros32(first|1<<portBits), bits.Len32(end-first)-1)
		out = append(out, portBlock{uint16(first), uint8(portBits - size)})
		first += 1 << size
	}
	return out
}

func (b portBlock) compare(o portBlock) int {
	return cmp.Or(cmp.Compare(b.port, o.port), cmp.Compare(b.bits, o.bits))
}

// sameBlocks compares as sets.
func sameBlocks(a, b []portBlock) bool {
	if len(a) != len(b) || slices.Equal(a, b) {
		return len(a) == len(b)
	}
	return slices.Equal(slices.SortedFunc(slices.Values(a), portBlock.compare), slices.SortedFunc(slices.Values(b), portBlock.compare))
}

// blockKey encodes the key of a block.
func (a *arena) blockKey(k plan.Key, b portBlock) []byte {
	at := len(a.Arena)
	a.Addr(k.Addr)
	a.Protocol(byte(k.Protocol))
	a.Port(b.port)
	return a.Cut(at)
}

// block reads the key of a block, and the address and protocol of its frontend.
func (d *decoder) block(bits uint8) (plan.Key, portBlock) {
	k := plan.Key{Addr: d.Addr(), Protocol: model.Protocol(d.Protocol())}
	b := portBlock{port: d.Port(), bits: bits}
	d.Check(b.port&(1<<(portBits-bits)-1) == 0)
	return k, b
}

// setBlocks has blocks of a range lead to new, which led to old or were missing. Their counters continue, in
// the first of them.
func (w *opWriter) setBlocks(m *blockMaps, k plan.Key, have, want []portBlock, old, new string, counted *programmed) {
	for i, b := range want {
		had := slices.Contains(have, b)
		if had && old == new {
			continue
		}
		e := nft.Element{Verdict: verdictTo(new)}
		if i == 0 && counted != nil {
			e.Packets, e.Bytes = counted.packets, counted.bytes
		}
		w.put(m[b.bits], w.arena.blockKey(k, b), e, had, true)
	}
}

func (w *opWriter) removeBlocks(m *blockMaps, k plan.Key, have, want []portBlock) {
	for _, b := range have {
		if !slices.Contains(want, b) {
			w.put(m[b.bits], w.arena.blockKey(k, b), nft.Element{}, true, false)
		}
	}
}

// eachBlock calls f with the map and the key of each block of a range.
func (p *programmed) eachBlock(a *arena, k plan.Key, f func(set string, key []byte)) {
	for _, b := range p.blocks {
		f(rangeBlocks[b.bits], a.blockKey(k, b))
	}
	for _, b := range p.outsideBlocks {
		f(outsideBlocks[b.bits], a.blockKey(k, b))
	}
}

// takeBlockCounter takes the counter of a block.
func (p *programmed) takeBlockCounter(outside bool, e *nft.Element) {
	if outside {
		p.outsidePackets += e.Packets
	} else {
		p.packets, p.bytes = p.packets+e.Packets, p.bytes+e.Bytes
	}
}

// ofRange is in the names of the chains of a range.
const ofRange = "-of-"

// blockOf reads an element of a map of blocks. Its verdict says of which range it is.
func (r *reader) blockOf(bits uint8, e *nft.Element) (k plan.Key, b portBlock, ours bool) {
	d := r.decode(e.Key)
	k, b = d.block(bits)
	name := r.nameOf(e)
	var ports model.PortRange
	at := strings.LastIndex(name, ofRange)
	if at < 0 || !d.Done() {
		return k, b, false
	}
	n, err := fmt.Sscanf(name[at:], ofRange+"%d-%d", &ports.First, &ports.Last)
	if n != 2 || err != nil || !strings.HasSuffix(name, rangeName(ports)) || !slices.Contains(blocksOf(ports), b) {
		return k, b, false
	}
	k.Port, k.Last = ports.First, ports.Last
	return k, b, true
}

// block takes an element of a map of blocks. All blocks of a range lead to the same chain.
func (r *reader) block(m blockMap) func(*nft.Element) bool {
	return func(e *nft.Element) bool {
		k, b, ours := r.blockOf(m.bits, e)
		if !ours {
			return false
		}
		p, name := r.frontend(k), r.nameOf(e)
		to, blocks := &p.verdict, &p.blocks
		if m.outside {
			to, blocks = &p.outside, &p.outsideBlocks
		}
		if *to != "" && *to != name {
			return false
		}
		if *to = name; !r.again(string(e.Key)) {
			*blocks = append(*blocks, b)
			p.takeBlockCounter(m.outside, e)
		}
		return true
	}
}

// target encodes where a connection to a frontend is led: those to ranges keep their port.
func (a *arena) target(k plan.Key, to netip.AddrPort) []byte {
	if !k.IsRange() {
		return a.endpoint(to)
	}
	at := len(a.Arena)
	a.Addr(to.Addr())
	return a.Cut(at)
}

// target reads what arena.target encoded.
func (d *decoder) target(of keyKind) netip.AddrPort {
	if of == byRange {
		return netip.AddrPortFrom(d.Addr(), 0)
	}
	return d.endpoint()
}

// takeRange counts a frontend of a range, and those that are gone.
func (t *table) takeRange(old, new *frontend) {
	if new != nil && new.IsRange() {
		at := spotOf(new.Key)
		if t.ranges[at] == nil {
			t.ranges[at] = map[plan.Key]*frontend{}
		}
		t.ranges[at][new.Key] = new
		t.rangeIPs.Hold(new.Addr)
	}
	if old != nil && old.IsRange() {
		at := spotOf(old.Key)
		if new == nil {
			delete(t.ranges[at], old.Key)
		}
		if len(t.ranges[at]) == 0 {
			delete(t.ranges, at)
		}
		t.rangeIPs.Release(old.Addr)
	}
}

// spotOf is the key without ports: an element of rangeBlocks belongs to one of the ranges there.
func spotOf(k plan.Key) plan.Key { return plan.Key{Addr: k.Addr, Protocol: k.Protocol} }

// countBlocks counts blocks, which come or go with a frontend, by their length.
func (t *table) countBlocks(f *frontend, n int) {
	if f == nil {
		return
	}
	count := func(maps *blockMaps, counts *[portBits + 1]int, blocks []portBlock) {
		for _, b := range blocks {
			before := counts[b.bits]
			if counts[b.bits] += n; before == 0 {
				t.chains.hold(rangeSetObject(maps[b.bits]))
			} else if counts[b.bits] == 0 {
				t.chains.release(rangeSetObject(maps[b.bits]))
			}
		}
	}
	count(&rangeBlocks, &t.blocks, f.blocks)
	count(&outsideBlocks, &t.outsideBlocks, f.outsideBlocks)
}

// followRanges has dispatch look for ranges while there are any, in the maps of blocks that there are.
func (t *table) followRanges() {
	var now blockLengths
	for bits := range portBits + 1 {
		if t.blocks[bits] > 0 {
			now[0] |= 1 << bits
		}
		if t.outsideBlocks[bits] > 0 {
			now[1] |= 1 << bits
		}
	}
	was := t.settings.blocks
	if now == was {
		return
	}
	t.settings.blocks = now
	tags := func(c chain) []uint64 { return tagsOf(c.rules(t.layout, &t.settings)) }
	for _, outside := range []bool{false, true} {
		find := chain{kind: findRange, split: outside}
		if _, there := t.chains.present[find]; there && *now.of(outside) != *was.of(outside) {
			t.chains.writeLater(find, tags)
		}
	}
	if now.some() != was.some() {
		t.chains.writeLater(chain{kind: dispatch}, tags)
	}
}

// overlapped returns the ranges in the kernel that a new one cannot be beside: a change that is written
// in portions may bring it before these are removed.
func (t *table) overlapped(k plan.Key) (out []*frontend) {
	for other, f := range t.ranges[spotOf(k)] {
		if other != k && other.Overlaps(k) {
			out = append(out, f)
		}
	}
	return out
}

// rangeAt returns the range that an element of rangeBlocks belongs to.
func (t *table) rangeAt(k plan.Key, b portBlock) (plan.Key, bool) {
	for other := range maps.Keys(t.ranges[k]) {
		if other.Ports().Contains(b.port) {
			return other, true
		}
	}
	return plan.Key{}, false
}

// findRange looks for the range of a packet to an address with ranges, or for its verdict for clients from
// outside.
func (w *ruleWriter) findRange(outside bool) {
	maps := &rangeBlocks
	if outside {
		maps = &outsideBlocks
	}
	for bits, name := range maps {
		if *w.settings.blocks.of(outside)&(1<<bits) != 0 {
			w.add(anyPacket.VerdictMap(name, nft.Concat{w.dest, nft.Protocol, nft.DestPort.Masked(bits)}))
		}
	}
}
