package iptables

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"sluice/internal/model"
)

// treeKey is the position of an entry in a tree: the bytes of an address, a protocol
// and a port, as far as the tree has them, so that keys in order are addresses in
// order. All keys of a tree have the same length.
type treeKey string

// protocolBits is the length of the protocol, which follows the address.
const protocolBits = 8

// addressKey is a key in a tree of addresses.
func addressKey(a netip.Addr) treeKey { return treeKey(a.AsSlice()) }

// portKey is a key in a tree of ports.
func portKey(p model.Protocol, port uint16) treeKey {
	return treeKey([]byte{byte(p), byte(port >> 8), byte(port)})
}

// serviceKey is a key in a tree of addresses with ports.
func serviceKey(a netip.Addr, p model.Protocol, port uint16) treeKey {
	return addressKey(a) + portKey(p, port)
}

// endpointKey is a key in a tree of endpoints.
func endpointKey(e netip.AddrPort) treeKey {
	return treeKey(binary.BigEndian.AppendUint16(e.Addr().AsSlice(), e.Port()))
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
