package iptables

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"sluice/internal/model"
)

// place is where an entry stands in a tree: the bytes of an address, of a
// protocol and of a port, as far as the tree has them, so that places in order
// are addresses in order. All places of a tree have the same length.
type place string

// protocolBits and portBits are what follows the address.
const (
	protocolBits = 8
	portBits     = 16
)

// addressPlace is the place of an address in a tree of addresses only.
func addressPlace(a netip.Addr) place { return place(a.AsSlice()) }

// portPlace is a place in a tree of ports.
func portPlace(p model.Protocol, port uint16) place {
	return place([]byte{byte(p), byte(port >> 8), byte(port)})
}

// servicePlace is a place in a tree of addresses with their ports.
func servicePlace(a netip.Addr, p model.Protocol, port uint16) place {
	return addressPlace(a) + portPlace(p, port)
}

// endpointPlace is a place in a tree of endpoints.
func endpointPlace(e netip.AddrPort) place {
	return place(binary.BigEndian.AppendUint16(e.Addr().AsSlice(), e.Port()))
}

// bit is the i-th one.
func (p place) bit(i int) int { return int(p[i/8]>>(7-i%8)) & 1 }

// common is how many bits two places of one tree begin with in common.
func (p place) common(o place) int {
	for i := range len(p) {
		if x := p[i] ^ o[i]; x != 0 {
			return 8*i + bits.LeadingZeros8(x)
		}
	}
	return 8 * len(p)
}

// prefix is what the places of a part of a tree begin with: so many bits of
// first, which is cut off behind them and filled up with zeros.
type prefix struct {
	first place
	bits  int
}

func (p place) cut(n int) prefix {
	if n == 8*len(p) {
		return prefix{p, n}
	}
	b := []byte(p)
	b[n/8] &= ^(0xff >> (n % 8))
	clear(b[n/8+1:])
	return prefix{place(b), n}
}

// extent is a prefix read as what it means: a range of addresses, or one
// address with a protocol and a range of ports, as far as they are fixed.
type extent struct {
	address  netip.Prefix // invalid for all
	protocol string       // "" for all
	from, to uint16       // 0 and 65535 for all
}

// extent reads a prefix of places whose address has that many bits.
func (p prefix) extent(addressBits int) extent {
	e := extent{to: 65535}
	if n := min(p.bits, addressBits); n > 0 {
		a, _ := netip.AddrFromSlice([]byte(p.first[:addressBits/8]))
		e.address = netip.PrefixFrom(a, n)
	}
	if p.bits < addressBits+protocolBits {
		return e // a part of the protocol cannot be said: this includes more
	}
	rest := p.first[addressBits/8:]
	e.protocol = protocolName(model.Protocol(rest[0]))
	e.from = binary.BigEndian.Uint16([]byte(rest[1:3]))
	e.to = e.from | 0xffff>>(p.bits-addressBits-protocolBits)
	return e
}

func (e extent) allPorts() bool { return e.from == 0 && e.to == 65535 }

// label is a form of the extent that fits into names of chains.
func (e extent) label() string {
	var parts []string
	if e.address.IsValid() {
		parts = append(parts, strings.NewReplacer(".", "-", "/", "-").Replace(e.address.String()))
	}
	if e.protocol != "" {
		parts = append(parts, strings.ToUpper(e.protocol))
	}
	if !e.allPorts() {
		parts = append(parts, fmt.Sprintf("%d-%d", e.from, e.to))
	}
	return strings.Join(parts, "-")
}

// chainName is the name of the chain for a part of a tree. IPv6 addresses and
// addresses with ports are mostly too long to be in it.
func (p prefix) chainName(begin string, addressBits int) string {
	if addressBits <= 32 && p.exact(addressBits) {
		if name := begin + p.extent(addressBits).label(); len(name) <= maxNameLen {
			return name
		}
	}
	return hashed(begin, string(p.first), fmt.Sprint(p.bits))
}

// exact tells whether the extent holds no places but those with the prefix.
func (p prefix) exact(addressBits int) bool {
	return p.bits <= addressBits || p.bits >= addressBits+protocolBits
}
