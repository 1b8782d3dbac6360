//go:build linux

package nftables

import (
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Source ranges are elements of a hash table, where adding, finding and removing one
// takes constant time; with the kernel's interval sets, the time grows with the square of
// their size. The key is the frontend, the first address of the range, and the length of
// the prefix; packets are looked up once for each length that a frontend has.

// sourceNumber encodes the protocol of a frontend and the length of a range: 6024 is TCP
// and 24. They share a part of the key because nft 1.0.6 cannot list keys with more than
// four.
func sourceNumber(p model.Protocol, bits int) uint32 { return uint32(p)*lengthFactor + uint32(bits) }

const lengthFactor = 1000

// sourceKey encodes a range of sources.
func (a *arena) sourceKey(k plan.Key, p netip.Prefix) []byte {
	at := len(a.Arena)
	a.Addr(k.Addr)
	a.ports(k)
	a.Addr(p.Addr())
	a.Word(sourceNumber(k.Protocol, p.Bits()))
	return a.Cut(at)
}

// source reads a range of sources, and its frontend.
func (d *decoder) source(of keyKind) (plan.Key, netip.Prefix) {
	k := plan.Key{Addr: d.Addr()}
	if of == byRange {
		d.rangeOf(&k)
	} else {
		k.Port = d.Port()
	}
	first, number := d.Addr(), d.index()
	k.Protocol = model.Protocol(number / lengthFactor)
	p := netip.PrefixFrom(first, number%lengthFactor)
	d.Check(p.IsValid() && p == p.Masked() && uint32(number) == sourceNumber(k.Protocol, p.Bits()))
	return k, p
}

// sourceKey is the key of a packet among ranges of one length.
func (l *layout) sourceKey(c chain, bits int) nft.Concat {
	port := nft.DestPort
	if c.ranged() {
		port = nft.Constant(rangeNumber(c.ports))
	}
	return nft.Concat{l.filtered(c.nodePort), port, l.source.Masked(bits), nft.Constant(sourceNumber(c.protocol, bits))}
}

// filtered is the address in the keys of source ranges: that of the packet, or the unspecified
// one for node ports, which answer on many.
func (l *layout) filtered(nodePort bool) nft.Value {
	if nodePort {
		return l.dest.Masked(0)
	}
	return l.dest
}

// filterKey encodes the key of a frontend in filters.
func (a *arena) filterKey(k plan.Key) []byte {
	at := len(a.Arena)
	a.Addr(k.Addr)
	a.Protocol(byte(k.Protocol))
	a.ports(k)
	return a.Cut(at)
}

// prefixLengths is a set of prefix lengths, with a bit for each from 0 to 128.
type prefixLengths [3]uint64

func lengthsOf(prefixes []netip.Prefix) (l prefixLengths) {
	for _, p := range prefixes {
		l[p.Bits()/64] |= 1 << (p.Bits() % 64)
	}
	return l
}

func (l prefixLengths) some() bool { return l != prefixLengths{} }

// all yields the lengths, the shortest first: most addresses match that.
func (l prefixLengths) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range l {
			for ; word != 0; word &= word - 1 {
				if !yield(i*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// namedLengths is up to how many lengths are listed in the name of a chain, whose length
// is limited.
const namedLengths = 8

func (l prefixLengths) String() string {
	var list []string
	for n := range l.all() {
		list = append(list, strconv.Itoa(n))
	}
	if len(list) > namedLengths {
		return fmt.Sprintf("x%x.%016x.%016x", l[2], l[1], l[0])
	}
	return strings.Join(list, ".")
}

// filterName is the part of a name that says what a filtered chain admits.
func (c chain) filterName() string {
	if !c.lengths.some() {
		return "all"
	}
	return strings.ToLower(c.protocol.String()) + "-" + c.lengths.String()
}

// notAdmitted is the chain for the other packets.
func (c chain) notAdmitted() chain {
	if c.nodePort {
		return chain{kind: dropPortSource}
	}
	return chain{kind: dropSource, ports: c.ports}
}

// admitted is the chain for packets that the source ranges admit.
func (c chain) admitted() chain {
	c.filtered, c.lengths, c.protocol = false, prefixLengths{}, 0
	return c.direct()
}
