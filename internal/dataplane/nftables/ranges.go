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
// A block leads to a chain of the range, in which the number of the range takes the place of the port:
// in the maps that follow, a range has elements as a single port has in others. All of these sets exist
// while there is a range.

// The sets and maps of ranges.
const (
	rangeIPs            = "range-ips"
	rangeBlocks         = "ranges"
	rangeFrontends      = "range-frontends"
	rangeOutside        = "range-outside"
	rangeEndpoints      = "range-endpoints"
	rangeLocalEndpoints = "range-local-endpoints"
	rangeSources        = "range-sources"
	rangeFilters        = "range-filters"
)

// rangeSets returns the sets that exist while there are ranges.
func (l *layout) rangeSets() []*nft.Set {
	typeof := func(parts ...nft.Value) nft.Type { return nft.Type{Parts: parts, Typeof: true} }
	number := nft.Random(1 << 16)
	frontend := typeof(l.dest, nft.Protocol, number)
	slot := typeof(l.dest, nft.Protocol, number, number)
	endpoint := typeof(l.dest)
	return []*nft.Set{
		{Name: rangeIPs, Key: nft.Type{Parts: nft.Concat{l.dest}}},
		{Name: rangeBlocks, Key: typeof(l.dest, nft.Protocol, nft.DestPort, number), Data: nft.VerdictType},
		{Name: rangeFrontends, Key: frontend, Data: nft.VerdictType, Counter: !l.uncounted},
		{Name: rangeOutside, Key: frontend, Data: nft.VerdictType, Counter: !l.uncounted},
		{Name: rangeEndpoints, Key: slot, Data: endpoint},
		{Name: rangeLocalEndpoints, Key: slot, Data: endpoint},
		{Name: rangeSources, Key: typeof(l.dest, number, l.source, number)},
		{Name: rangeFilters, Key: frontend, Data: nft.VerdictType, Counter: !l.uncounted},
	}
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
var rangeSetNames = []string{rangeIPs, rangeBlocks, rangeFrontends, rangeOutside, rangeEndpoints, rangeLocalEndpoints, rangeSources, rangeFilters}

// rangeSetObject describes a set of ranges for the mirror, which has it among the chains.
func rangeSetObject(i int) chain { return chain{kind: rangeSet, part: uint8(i)} }

// isSet reports whether it is not a chain but a set, or a map of clients.
func (c chain) isSet() bool { return c.kind == remembered || c.kind == rangeSet }

// eachRangeSet calls f with the objects of all sets of ranges.
func eachRangeSet(f func(chain)) {
	for i := range rangeSetNames {
		f(rangeSetObject(i))
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
	a.Word(uint32(b.bits))
	return a.Cut(at)
}

// block reads the key of a block, and the address and protocol of its frontend.
func (d *decoder) block() (plan.Key, portBlock) {
	k := plan.Key{Addr: d.Addr(), Protocol: model.Protocol(d.Protocol())}
	b := portBlock{port: d.Port()}
	n := d.index()
	d.Check(n <= portBits)
	b.bits = uint8(n)
	return k, b
}

// setBlocks adds or removes those blocks of these that are not in those.
func (w *opWriter) setBlocks(k plan.Key, these, those []portBlock, remove bool) {
	if slices.Equal(these, those) {
		return
	}
	for _, b := range these {
		if !slices.Contains(those, b) {
			to := rangeChain(k.Ports())
			w.put(rangeBlocks, w.arena.blockKey(k, b), nft.Element{Verdict: verdictTo(to.name())}, remove, !remove)
		}
	}
}

// rangeChain is the chain of a range, whatever its address.
func rangeChain(r model.PortRange) chain { return chain{kind: inRange, ports: r} }

const rangeChainPrefix = "range-"

// block takes an element of rangeBlocks. Its verdict says of which range it is.
func (r *reader) block(e *nft.Element) bool {
	d := r.decode(e.Key)
	k, b := d.block()
	var ports model.PortRange
	name, found := strings.CutPrefix(r.nameOf(e), rangeChainPrefix)
	n, err := fmt.Sscanf(name, "%d-%d", &ports.First, &ports.Last)
	if !d.Done() || !found || n != 2 || err != nil || rangeChain(ports).name() != rangeChainPrefix+name || !slices.Contains(blocksOf(ports), b) {
		return false
	}
	k.Port, k.Last = ports.First, ports.Last
	if p := r.frontend(k); !r.again(string(e.Key)) {
		p.blocks = append(p.blocks, b)
	}
	return true
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

// followRanges has dispatch look for ranges while there are any.
func (t *table) followRanges() {
	some := len(t.ranges) > 0
	if some == t.settings.ranges {
		return
	}
	t.settings.ranges = some
	if some {
		t.chains.hold(chain{kind: findRange})
	} else {
		t.chains.release(chain{kind: findRange})
	}
	t.chains.writeLater(chain{kind: dispatch}, func(c chain) []uint64 { return tagsOf(c.rules(t.layout, &t.settings)) })
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

// findRange looks for the range of a packet to an address with ranges.
func (w *ruleWriter) findRange() {
	for bits := range portBits + 1 {
		key := nft.Concat{w.dest, nft.Protocol, nft.DestPort.Masked(bits), nft.Constant(uint32(bits))}
		w.add(anyPacket.VerdictMap(rangeBlocks, key))
	}
}
