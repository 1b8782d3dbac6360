package nftables

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/nft"
)

// value is something that a rule loads into registers: what nft(8) calls it, how
// many bytes it has, and how it is loaded.
type value struct {
	text string
	len  int
	load func(nft.Attrs, nft.Register) nft.Attrs
}

// concat is values in registers behind each other: what is looked up in a set.
type concat []value

// load puts the key into registers and returns the register behind it.
func (k concat) load(a nft.Attrs, at nft.Register) (nft.Attrs, nft.Register) {
	for _, v := range k {
		a = v.load(a, at)
		at = at.After(v.len)
	}
	return a, at
}

func (k concat) text() string {
	parts := make([]string, len(k))
	for i, v := range k {
		parts[i] = v.text
	}
	return strings.Join(parts, " . ")
}

// header is a part of the packet's network header.
func (l *layout) header(name string, offset uint32) value {
	return value{l.nf.String() + " " + name, l.addrLen, func(a nft.Attrs, to nft.Register) nft.Attrs {
		return a.Network(to, offset, uint32(l.addrLen))
	}}
}

func (l *layout) sourceAddr() value { return l.header("saddr", l.sourceAt) }
func (l *layout) destAddr() value   { return l.header("daddr", l.destAt) }

// masked is the first bits of an address, and zeros.
func (v value) masked(bits int) value {
	if bits == v.len*8 {
		return v
	}
	mask := maskBytes(v.len, bits)
	ip, _ := netip.AddrFromSlice(mask)
	return value{v.text + " & " + ip.String(), v.len, func(a nft.Attrs, to nft.Register) nft.Attrs {
		return v.load(a, to).Bitwise(to, mask, make([]byte, v.len))
	}}
}

func meta(name string, len int, number uint32) value {
	return value{name, len, func(a nft.Attrs, to nft.Register) nft.Attrs { return a.Meta(to, number) }}
}

func conntrack(name string, len int, number uint32) value {
	return value{name, len, func(a nft.Attrs, to nft.Register) nft.Attrs { return a.Conntrack(to, number) }}
}

var (
	packetMark    = meta("meta mark", wordLen, unix.NFT_META_MARK)
	protocol      = meta("meta l4proto", 1, unix.NFT_META_L4PROTO)
	interfaceName = meta("iifname", unix.IFNAMSIZ, unix.NFT_META_IIFNAME)

	ctState  = conntrack("ct state", wordLen, unix.NFT_CT_STATE)
	ctStatus = conntrack("ct status", wordLen, unix.NFT_CT_STATUS)

	destPort   = value{"th dport", 2, func(a nft.Attrs, to nft.Register) nft.Attrs { return a.Transport(to, 2, 2) }}
	sourceType = value{"fib saddr type", wordLen, nft.Attrs.SourceType}
	destType   = value{"fib daddr type", wordLen, nft.Attrs.DestType}
)

func random(below int) value {
	return value{fmt.Sprintf("numgen random mod %d", below), wordLen, func(a nft.Attrs, to nft.Register) nft.Attrs {
		return a.Random(to, uint32(below), 0)
	}}
}

// constant is a number. nft(8) knows none in a key; what it calls random among one
// is the same.
func constant(n uint32) value {
	return value{fmt.Sprintf("numgen random mod 1 offset %d", n), wordLen, func(a nft.Attrs, to nft.Register) nft.Attrs {
		return a.Random(to, 1, n)
	}}
}

// values are the number as part of a key.
func (id affinityID) values() concat {
	words := id.words()
	return concat{constant(words[0]), constant(words[1])}
}

var directions = map[uint8]string{nft.Original: "original", nft.Reply: "reply"}

func tuple(name string, len int, number uint32, direction uint8) value {
	return value{"ct " + directions[direction] + " " + name, len, func(a nft.Attrs, to nft.Register) nft.Attrs {
		return a.ConntrackTuple(to, number, direction)
	}}
}

// tupleSource is the source address of the connection's tuple in one direction.
func (l *layout) tupleSource(direction uint8) value {
	number := uint32(unix.NFT_CT_SRC_IP)
	if l.family == model.IPv6 {
		number = unix.NFT_CT_SRC_IP6
	}
	return tuple(l.nf.String()+" saddr", l.addrLen, number, direction)
}

// tupleDest is the destination address that the connection began with.
func (l *layout) tupleDest() value {
	number := uint32(unix.NFT_CT_DST_IP)
	if l.family == model.IPv6 {
		number = unix.NFT_CT_DST_IP6
	}
	return tuple(l.nf.String()+" daddr", l.addrLen, number, nft.Original)
}

var (
	tupleDestPort   = tuple("proto-dst", 2, unix.NFT_CT_PROTO_DST, nft.Original)
	replySourcePort = tuple("proto-src", 2, unix.NFT_CT_PROTO_SRC, nft.Reply)
)

// frontendKey is the key of the services map, or of the nodeports map.
func (l *layout) frontendKey(nodePort bool) concat {
	if nodePort {
		return concat{protocol, destPort}
	}
	return concat{l.destAddr(), protocol, destPort}
}

// tupleKey is the same of the connection's tuple.
func (l *layout) tupleKey(nodePort bool) concat {
	if nodePort {
		return concat{protocol, tupleDestPort}
	}
	return concat{l.tupleDest(), protocol, tupleDestPort}
}
