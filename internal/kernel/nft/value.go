//go:build linux

package nft

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// Value is a property of a packet that rules load into registers, for example its source
// address. Keys and data of sets consist of values.
type Value struct {
	text string // as nft(8) writes it
	len  int    // bytes without padding
	load func(attrs, register) attrs

	// id, kind and attrs are for types of sets: the number of nft's datatype, and
	// the expression as nft's userdata describes it.
	id, kind uint32
	attrs    []uint32
}

// Concat is a concatenation of values, in registers one after the other.
type Concat []Value

func (c Concat) load(a attrs, at register) (attrs, register) {
	for _, v := range c {
		a = v.load(a, at)
		at = at.after(v.len)
	}
	return a, at
}

func (c Concat) text() string {
	parts := make([]string, len(c))
	for i, v := range c {
		parts[i] = v.text
	}
	return strings.Join(parts, " . ")
}

// register is a 32-bit register, from 0 to 15. Longer values take several.
type register uint32

// number is the kernel's.
func (r register) number() uint32 { return unix.NFT_REG32_00 + uint32(r) }

func (r register) after(bytes int) register { return r + register(nfnetlink.Align(bytes)/4) }

// Values that keys of sets consist of.
var (
	SourceIP4 = Value{"ip saddr", 4, payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 12, 4), idIP4, kindPayload, []uint32{descIP, 11}}
	DestIP4   = Value{"ip daddr", 4, payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4), idIP4, kindPayload, []uint32{descIP, 12}}
	SourceIP6 = Value{"ip6 saddr", 16, payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 8, 16), idIP6, kindPayload, []uint32{descIP6, 8}}
	DestIP6   = Value{"ip6 daddr", 16, payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 24, 16), idIP6, kindPayload, []uint32{descIP6, 9}}
	Protocol  = Value{"meta l4proto", 1, meta(unix.NFT_META_L4PROTO), idProtocol, kindMeta, []uint32{16}}
	Interface = Value{"iifname", unix.IFNAMSIZ, meta(unix.NFT_META_IIFNAME), idInterface, kindMeta, []uint32{unix.NFT_META_IIFNAME}}
	DestPort  = Value{"th dport", 2, payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2), idPort, kindPayload, []uint32{descTH, 2}}
)

// WordLen is the length of a register, to which shorter values are padded.
const WordLen = 4

// Values that rules only compare.
var (
	mark         = Value{text: "meta mark", len: WordLen, load: meta(unix.NFT_META_MARK)}
	ctState      = Value{text: "ct state", len: WordLen, load: ct(unix.NFT_CT_STATE)}
	ctStatus     = Value{text: "ct status", len: WordLen, load: ct(unix.NFT_CT_STATUS)}
	ctDirection  = Value{text: "ct direction", len: 1, load: ct(unix.NFT_CT_DIRECTION)}
	icmpTypeCode = Value{text: "@th,0,16", len: 2, load: payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2)}
	tcpFlags     = Value{text: "tcp flags", len: 1, load: payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1)}
	sourceType   = Value{text: "fib saddr type", len: WordLen, load: fib(unix.NFTA_FIB_F_SADDR)}
	destType     = Value{text: "fib daddr type", len: WordLen, load: fib(unix.NFTA_FIB_F_DADDR)}
)

// Random is a random number below modulus.
func Random(modulus int) Value {
	return Value{fmt.Sprintf("numgen random mod %d", modulus), WordLen, numgen(unix.NFT_NG_RANDOM, uint32(modulus), 0),
		idInteger, kindNumgen, []uint32{1, uint32(modulus), 0}}
}

// Constant is a number in a key. nft(8) knows none; a random one among one is the
// same.
func Constant(n uint32) Value {
	text := "numgen random mod 1"
	if n > 0 {
		text += fmt.Sprintf(" offset %d", n)
	}
	return Value{text: text, len: WordLen, load: numgen(unix.NFT_NG_RANDOM, 1, n)}
}

// Incremental is a number below modulus, the next one for each packet. Each rule counts for
// itself.
func Incremental(modulus int) Value {
	return Value{text: fmt.Sprintf("numgen inc mod %d", modulus), len: WordLen, load: numgen(unix.NFT_NG_INCREMENTAL, uint32(modulus), 0)}
}

// Hash is a number below modulus that follows from a value.
func Hash(of Value, modulus int, seed uint32) Value {
	text := fmt.Sprintf("jhash %s mod %d seed 0x%x", of.text, modulus, seed)
	return Value{text: text, len: WordLen, load: func(a attrs, to register) attrs {
		from := to.after(WordLen)
		return of.load(a, from).expr("hash", func(a attrs) attrs {
			a = a.u32(unix.NFTA_HASH_SREG, from.number()).u32(unix.NFTA_HASH_DREG, to.number())
			a = a.u32(unix.NFTA_HASH_LEN, uint32(of.len)).u32(unix.NFTA_HASH_MODULUS, uint32(modulus))
			return a.u32(unix.NFTA_HASH_SEED, seed).u32(unix.NFTA_HASH_TYPE, unix.NFT_HASH_JENKINS)
		})
	}}
}

// Direction is a direction of a connection.
type Direction uint8

// The directions.
const (
	Original Direction = 0
	Reply    Direction = 1
)

func (d Direction) String() string {
	if d == Reply {
		return "reply"
	}
	return "original"
}

// TupleSource is the source address of packets of a connection in one direction, as
// they come in.
func TupleSource(f Family, d Direction) Value {
	return tuple(f.String()+" saddr", f.AddrLen(), f.pick(unix.NFT_CT_SRC_IP, unix.NFT_CT_SRC_IP6), d)
}

// TupleDest is the same for the destination address.
func TupleDest(f Family, d Direction) Value {
	return tuple(f.String()+" daddr", f.AddrLen(), f.pick(unix.NFT_CT_DST_IP, unix.NFT_CT_DST_IP6), d)
}

// TupleSourcePort is the same for the source port.
func TupleSourcePort(d Direction) Value { return tuple("proto-src", 2, unix.NFT_CT_PROTO_SRC, d) }

// TupleDestPort is the same for the destination port.
func TupleDestPort(d Direction) Value { return tuple("proto-dst", 2, unix.NFT_CT_PROTO_DST, d) }

func tuple(name string, len int, key uint32, d Direction) Value {
	load := loader("ct", unix.NFTA_CT_DREG, func(a attrs) attrs {
		return a.u32(unix.NFTA_CT_KEY, key).u8(unix.NFTA_CT_DIRECTION, uint8(d))
	})
	return Value{text: fmt.Sprintf("ct %s %s", d, name), len: len, load: load}
}

// TupleProtocol is the transport protocol of a connection, also for an ICMP error about one of its packets.
var TupleProtocol = Value{text: "ct protocol", len: 1, load: ct(unix.NFT_CT_PROTOCOL)}

// Masked is the first bits of an address or a port, and zeros.
func (v Value) Masked(bits int) Value {
	if bits == v.len*8 {
		return v
	}
	mask := make([]byte, v.len)
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	text := strconv.Itoa(int(mask[0])<<8 | int(mask[1]))
	if ip, is := netip.AddrFromSlice(mask); is {
		text = ip.String()
	}
	return Value{text: v.text + " & " + text, len: v.len, load: func(a attrs, to register) attrs {
		return v.load(a, to).bitwise(to, mask, make([]byte, v.len))
	}}
}

// loader loads the result of an expression, which has an attribute for the register and
// those that fill appends.
func loader(expr string, dreg uint16, fill func(attrs) attrs) func(attrs, register) attrs {
	return func(a attrs, to register) attrs {
		return a.expr(expr, func(a attrs) attrs { return fill(a.u32(dreg, to.number())) })
	}
}

func payload(base, offset, length uint32) func(attrs, register) attrs {
	return loader("payload", unix.NFTA_PAYLOAD_DREG, func(a attrs) attrs {
		return a.u32(unix.NFTA_PAYLOAD_BASE, base).u32(unix.NFTA_PAYLOAD_OFFSET, offset).u32(unix.NFTA_PAYLOAD_LEN, length)
	})
}

func meta(key uint32) func(attrs, register) attrs {
	return loader("meta", unix.NFTA_META_DREG, func(a attrs) attrs { return a.u32(unix.NFTA_META_KEY, key) })
}

func ct(key uint32) func(attrs, register) attrs {
	return loader("ct", unix.NFTA_CT_DREG, func(a attrs) attrs { return a.u32(unix.NFTA_CT_KEY, key) })
}

// fib loads the type (RTN_...) that an address of the packet has on this node.
func fib(of uint32) func(attrs, register) attrs {
	return loader("fib", unix.NFTA_FIB_DREG, func(a attrs) attrs {
		return a.u32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE).u32(unix.NFTA_FIB_FLAGS, of)
	})
}

// numgen loads a number from offset on, below offset plus modulus.
func numgen(kind, modulus, offset uint32) func(attrs, register) attrs {
	return loader("numgen", unix.NFTA_NG_DREG, func(a attrs) attrs {
		return a.u32(unix.NFTA_NG_MODULUS, modulus).u32(unix.NFTA_NG_TYPE, kind).u32(unix.NFTA_NG_OFFSET, offset)
	})
}
