//go:build linux

package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// This file has what hands packets to neighbours, whatever their destination is.

// EtherSource is the address of the interface that sent a packet on the last link.
var EtherSource = Value{"ether saddr", 6, payload(unix.NFT_PAYLOAD_LL_HEADER, 6, 6), idEther, kindPayload, []uint32{descEther, 2}}

// SourcePort is the port that a packet comes from.
var SourcePort = Value{"th sport", 2, payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2), idPort, kindPayload, []uint32{descTH, 1}}

// Values that rules only compare.
var (
	packetType    = Value{text: "meta pkttype", len: 1, load: meta(unix.NFT_META_PKTTYPE)}
	etherType     = Value{text: "meta protocol", len: 2, load: meta(unix.NFT_META_PROTOCOL)}
	arrivedAt     = Value{text: "iif", len: WordLen, load: meta(unix.NFT_META_IIF)}
	ip4Protocol   = Value{"ip protocol", 1, payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1), idProtocol, kindPayload, []uint32{descIP, 9}}
	ip6NextHeader = Value{"ip6 nexthdr", 1, payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 6, 1), idProtocol, kindPayload, []uint32{descIP6, 6}}
	ip4TTL        = Value{text: "ip ttl", len: 1, load: payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 8, 1)}
	ip6HopLimit   = Value{text: "ip6 hoplimit", len: 1, load: payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 7, 1)}
	fragment      = Value{text: "ip frag-off", len: 2, load: payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 6, 2)}
)

// Bits of the state of a connection.
const (
	Invalid     = 1 << 0      // NF_CT_STATE_INVALID_BIT
	Established = 1<<1 | 1<<2 // NF_CT_STATE_BIT(IP_CT_ESTABLISHED), and IP_CT_RELATED
	New         = ctStateNew
	Untracked   = 1 << 6 // NF_CT_STATE_UNTRACKED_BIT
)

// HeaderProtocol is the protocol that the IP header names. Unlike Protocol, it is no transport protocol in
// packets of IPv6 with extension headers.
func HeaderProtocol(f Family) Value {
	if f == IP6 {
		return ip6NextHeader
	}
	return ip4Protocol
}

// Transport is some bytes from the beginning of the transport header.
func Transport(offset, length int) Value {
	return Value{text: fmt.Sprintf("@th,%d,%d", 8*offset, 8*length), len: length, id: idInteger,
		load: payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, uint32(offset), uint32(length))}
}

// HashOf is Hash of several values.
func HashOf(of Concat, modulus int, seed uint32) Value {
	if len(of) == 1 {
		return Hash(of[0], modulus, seed)
	}
	whole := Value{text: of.text(), len: Type{Parts: of}.Len(), load: func(a attrs, to register) attrs {
		a, _ = of.load(a, to)
		return a
	}}
	return Hash(whole, modulus, seed)
}

// ToOthers matches packets that are addressed to others than this machine on the link.
func (e Exprs) ToOthers() Exprs {
	return e.then(packetType.text+" != host", func(a attrs) attrs {
		return packetType.load(a, 0).cmp(unix.NFT_CMP_NEQ, []byte{unix.PACKET_HOST})
	})
}

// OfFamily matches packets of an IP family.
func (e Exprs) OfFamily(f Family) Exprs {
	return e.equal(etherType, binary.BigEndian.AppendUint16(nil, uint16(f.pick(unix.ETH_P_IP, unix.ETH_P_IPV6))), f.String())
}

// NotAt matches packets that arrived elsewhere than at the interface with an index.
func (e Exprs) NotAt(index int) Exprs {
	return e.then(fmt.Sprintf("%s != %d", arrivedAt.text, index), func(a attrs) attrs {
		return arrivedAt.load(a, 0).cmp(unix.NFT_CMP_NEQ, word(uint32(index)))
	})
}

// InState matches packets of connections with one of some states.
func (e Exprs) InState(states uint32) Exprs {
	return e.anyBit(ctState, states, fmt.Sprintf("& 0x%x != 0x0", states))
}

// HasHeaderProtocol matches packets whose IP header names a protocol.
func (e Exprs) HasHeaderProtocol(f Family, p byte) Exprs {
	return e.equal(HeaderProtocol(f), []byte{p}, fmt.Sprint(p))
}

// Fragment matches parts of a packet of IPv4, also the first one.
func (e Exprs) Fragment() Exprs {
	return e.then(fragment.text+" & 0x3fff != 0x0", func(a attrs) attrs {
		return fragment.load(a, 0).bitwise(0, []byte{0x3f, 0xff}, []byte{0, 0}).cmp(unix.NFT_CMP_NEQ, []byte{0, 0})
	})
}

// Equal matches packets whose value has these bytes.
func (e Exprs) Equal(v Value, bytes []byte) Exprs {
	return e.equal(v, bytes, fmt.Sprintf("0x%x", bytes))
}

// NotEqual matches the others.
func (e Exprs) NotEqual(v Value, bytes []byte) Exprs {
	return e.then(fmt.Sprintf("%s != 0x%x", v.text, bytes), func(a attrs) attrs {
		return v.load(a, 0).cmp(unix.NFT_CMP_NEQ, bytes)
	})
}

// Below matches packets whose value, a number of one byte, is less than a limit, and AtLeast the others.
func (e Exprs) Below(v Value, limit byte) Exprs {
	return e.then(fmt.Sprintf("%s < %d", v.text, limit), func(a attrs) attrs {
		return v.load(a, 0).cmp(unix.NFT_CMP_LT, []byte{limit})
	})
}

// AtLeast is the opposite of Below.
func (e Exprs) AtLeast(v Value, limit byte) Exprs {
	return e.then(fmt.Sprintf("%s >= %d", v.text, limit), func(a attrs) attrs {
		return v.load(a, 0).cmp(unix.NFT_CMP_GTE, []byte{limit})
	})
}

// TTL is how many more routers a packet may pass.
func TTL(f Family) Value {
	if f == IP6 {
		return ip6HopLimit
	}
	return ip4TTL
}

// NotIn matches packets whose key is not in a set.
func (e Exprs) NotIn(set string, key Concat) Exprs {
	return e.then(key.text()+" != @"+set, func(a attrs) attrs {
		a, _ = key.load(a, 0)
		return a.expr("lookup", func(a attrs) attrs {
			a = a.text(unix.NFTA_LOOKUP_SET, set).u32(unix.NFTA_LOOKUP_SREG, register(0).number())
			return a.u32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
		})
	})
}

// The registers of a rule that hands packets on: the address, of up to 16 bytes, and the device. The
// first ones are for the key, the last one for the TTL.
const (
	neighbourRegister register = 8
	deviceRegister    register = 12
	ttlRegister       register = 13
)

// Neighbour is who a packet is handed to, through the interface with an index.
type Neighbour struct {
	Family Family
	Device int
	// Map has the neighbour's address for Key; without a Map, Key is the address.
	Map string
	Key Concat
}

func (n *Neighbour) text() string {
	text := "to " + n.Key.text()
	if n.Map != "" {
		text += " map @" + n.Map
	}
	return fmt.Sprintf("%s device %d", text, n.Device)
}

// find loads the address. The rule ends if the map has none.
func (n *Neighbour) find(a attrs) attrs {
	if n.Map != "" {
		return a.lookup(n.Map, n.Key, neighbourRegister.number())
	}
	a, _ = n.Key.load(a, neighbourRegister)
	return a
}

// Known matches packets for which the map has a neighbour.
func (e Exprs) Known(n Neighbour) Exprs {
	nobody := make([]byte, n.Family.AddrLen())
	addr, _ := netip.AddrFromSlice(nobody)
	return e.then(fmt.Sprintf("%s map @%s != %s", n.Key.text(), n.Map, addr), func(a attrs) attrs {
		return a.lookup(n.Map, n.Key, register(0).number()).cmp(unix.NFT_CMP_NEQ, nobody)
	})
}

// HandOn sends the packet itself to a neighbour from an ingress hook, counts it, and lowers its TTL.
func (e Exprs) HandOn(n Neighbour) Exprs {
	return e.then(CounterText(0, 0)+" fwd "+n.Family.String()+" "+n.text(), func(a attrs) attrs {
		a = n.find(a).nested(unix.NFTA_LIST_ELEM, func(a attrs) attrs { return a.counter(0, 0) })
		return a.immediate(deviceRegister, word(uint32(n.Device))).expr("fwd", func(a attrs) attrs {
			a = a.u32(unix.NFTA_FWD_SREG_DEV, deviceRegister.number()).u32(fwdSregAddr, neighbourRegister.number())
			return a.u32(fwdNFProto, uint32(n.Family))
		})
	})
}

const (
	fwdSregAddr = 2 // NFTA_FWD_SREG_ADDR
	fwdNFProto  = 3 // NFTA_FWD_NFPROTO
)

// Divert sends the packet to a neighbour from a hook of IP, with another TTL unless that is 0, counts it and
// drops it here.
func (e Exprs) Divert(n Neighbour, ttl byte) Exprs { return e.Copy(n, ttl).Drop() }

// Copy is Divert for a packet that goes on here as well. The TTL is the one with which it arrives: the kernel lowers
// that of copies before routing.
func (e Exprs) Copy(n Neighbour, ttl byte) Exprs {
	text := CounterText(0, 0) + " "
	if ttl != 0 {
		ttl++
		text += fmt.Sprintf("%s set %d ", TTL(n.Family).text, ttl)
	}
	return e.then(text+"dup "+n.text(), func(a attrs) attrs {
		a = n.find(a).nested(unix.NFTA_LIST_ELEM, func(a attrs) attrs { return a.counter(0, 0) })
		if ttl != 0 {
			a = a.setTTL(n.Family, ttl)
		}
		return a.immediate(deviceRegister, word(uint32(n.Device))).expr("dup", func(a attrs) attrs {
			return a.u32(unix.NFTA_DUP_SREG_ADDR, neighbourRegister.number()).u32(unix.NFTA_DUP_SREG_DEV, deviceRegister.number())
		})
	})
}

// setTTL sets the TTL. That of IPv4 is written together with the protocol beside it: the kernel corrects the
// checksum of the header for even numbers of bytes only.
func (a attrs) setTTL(f Family, ttl byte) attrs {
	if f == IP6 {
		return a.immediate(ttlRegister, []byte{ttl}).store(7, ttlRegister, 1, false)
	}
	a = payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 8, 2)(a, ttlRegister)
	return a.bitwise(ttlRegister, []byte{0, 0xff}, []byte{ttl, 0}).store(8, ttlRegister, 2, true)
}

// store writes a register into the IP header, which has a checksum in IPv4.
func (a attrs) store(offset uint32, from register, length uint32, checksum bool) attrs {
	return a.expr("payload", func(a attrs) attrs {
		a = a.u32(unix.NFTA_PAYLOAD_SREG, from.number()).u32(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER)
		a = a.u32(unix.NFTA_PAYLOAD_OFFSET, offset).u32(unix.NFTA_PAYLOAD_LEN, length)
		if !checksum {
			return a
		}
		return a.u32(unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFT_PAYLOAD_CSUM_INET).u32(unix.NFTA_PAYLOAD_CSUM_OFFSET, 10)
	})
}

// AnswerAs makes the destination of a packet its source as well.
func (e Exprs) AnswerAs(f Family) Exprs {
	from, to := f.pick(12, 8), f.pick(16, 24)
	text := "ip saddr set ip daddr"
	if f == IP6 {
		text = "ip6 saddr set ip6 daddr"
	}
	return e.then(text, func(a attrs) attrs {
		a = payload(unix.NFT_PAYLOAD_NETWORK_HEADER, to, uint32(f.AddrLen()))(a, 0)
		return a.store(from, 0, uint32(f.AddrLen()), f == IP)
	})
}
