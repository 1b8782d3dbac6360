//go:build linux

package iptables

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"sluice/internal/model"
)

// treeKey is the position of an entry in a tree: the bytes of an address, a protocol
// and a port, as far as the tree has them, so that keys in order are addresses in
// order. All keys of a tree have the same length.
type treeKey string

// protocolBits is the length of the protocol, which follows the address.
const protocolBits = 8

func addressKey(a netip.Addr) treeKey { return treeKey(a.AsSlice()) }

func portKey(p model.Protocol, port uint16) treeKey {
	return treeKey([]byte{byte(p), byte(port >> 8), byte(port)})
}

func serviceKey(a netip.Addr, p model.Protocol, port uint16) treeKey {
	return addressKey(a) + portKey(p, port)
}

func endpointKey(e netip.AddrPort) treeKey {
	var room [16 + 2]byte // a pool has very many
	b := room[:0]
	if ip := e.Addr(); ip.Is4() {
		four := ip.As4()
		b = append(b, four[:]...)
	} else {
		six := ip.As16()
		b = append(b, six[:]...)
	}
	return treeKey(binary.BigEndian.AppendUint16(b, e.Port()))
}

func (key treeKey) bit(i int) int { return int(key[i/8]>>(7-i%8)) & 1 }

// common is the length of the common prefix of two keys, in bits.
func (key treeKey) common(o treeKey) int {
	for i := range len(key) {
		if x := key[i] ^ o[i]; x != 0 {
			return 8*i + bits.LeadingZeros8(x)
		}
	}
	return 8 * len(key)
}

// prefix is the prefix of that many bits.
func (key treeKey) prefix(n int) prefix {
	if n == 8*len(key) {
		return prefix{key, n}
	}
	b := []byte(key)
	b[n/8] &= ^(0xff >> (n % 8))
	clear(b[n/8+1:])
	return prefix{treeKey(b), n}
}

// prefix is the common prefix of the keys in a part of a tree: so many bits of first,
// which is zero behind them.
type prefix struct {
	first treeKey
	bits  int
}

// chainName is the name of the chain for a part of a tree. IPv6 addresses, and
// addresses with ports, are mostly too long for a name.
func (p prefix) chainName(start string, addressBits int) string {
	if addressBits <= 32 && p.exact(addressBits) {
		if name := start + p.extent(addressBits).label(); len(name) <= maxNameLen {
			return name
		}
	}
	return hashed(start, string(p.first), fmt.Sprint(p.bits))
}

// exact reports whether the extent has no other keys than those with the prefix.
func (p prefix) exact(addressBits int) bool {
	return p.bits <= addressBits || p.bits >= addressBits+protocolBits
}

// extent is the meaning of a prefix: a range of addresses, or one address with a
// protocol and a range of ports, as far as they are fixed.
type extent struct {
	address  netip.Prefix // invalid for all
	protocol string       // "" for all
	from, to uint16       // 0 and 65535 for all
}

// extent decodes a prefix of keys whose address has that many bits.
func (p prefix) extent(addressBits int) extent {
	e := extent{to: 65535}
	if n := min(p.bits, addressBits); n > 0 {
		a, _ := netip.AddrFromSlice([]byte(p.first[:addressBits/8]))
		e.address = netip.PrefixFrom(a, n)
	}
	if p.bits < addressBits+protocolBits {
		return e // no rule matches a part of the protocol: this includes more
	}
	rest := p.first[addressBits/8:]
	e.protocol = protocolName(model.Protocol(rest[0]))
	e.from = binary.BigEndian.Uint16([]byte(rest[1:3]))
	e.to = e.from | 0xffff>>(p.bits-addressBits-protocolBits)
	return e
}

func (e extent) allPorts() bool { return e.from == 0 && e.to == 65535 }

// label is a form of the extent for names of chains.
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
