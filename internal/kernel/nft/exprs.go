//go:build linux

package nft

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Exprs is the expressions of a rule: for the kernel, and as nft(8) lists them. Its
// methods append one, so that a rule reads as in nft(8); a match ends the rule for
// packets that do not match. The zero value matches every packet.
type Exprs struct {
	attrs attrs
	text  string
}

func (e Exprs) String() string { return e.text }

// Tag returns a hash of the expressions, for Rule.Tag.
func (e Exprs) Tag() uint64 {
	h := fnv.New64a()
	h.Write(e.attrs)
	return h.Sum64()
}

// then appends an expression in both forms.
func (e Exprs) then(text string, encode func(attrs) attrs) Exprs {
	if e.text != "" {
		text = " " + text
	}
	return Exprs{encode(slices.Clip(e.attrs)), e.text + text}
}

// Verdict ends the rule with a verdict.
func (e Exprs) Verdict(v *Verdict) Exprs {
	return e.then(v.String(), func(a attrs) attrs {
		return a.expr("immediate", func(a attrs) attrs {
			a = a.u32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
			return a.verdict(unix.NFTA_IMMEDIATE_DATA, v)
		})
	})
}

// Drop drops the packet.
func (e Exprs) Drop() Exprs { return e.Verdict(&Verdict{Code: DropCode}) }

// Accept accepts the packet: the rest of the base chain is skipped.
func (e Exprs) Accept() Exprs { return e.Verdict(&Verdict{Code: AcceptCode}) }

// Return returns to the chain that jumped here.
func (e Exprs) Return() Exprs { return e.Verdict(&Verdict{Code: ReturnCode}) }

// Goto continues in another chain, and does not return from it.
func (e Exprs) Goto(chain string) Exprs { return e.Verdict(Goto(chain)) }

// Jump continues in another chain, and returns from it.
func (e Exprs) Jump(chain string) Exprs { return e.Verdict(&Verdict{Code: JumpCode, Chain: chain}) }

// Count counts the packets that get this far.
func (e Exprs) Count() Exprs {
	return e.then(CounterText(0, 0), func(a attrs) attrs {
		return a.nested(unix.NFTA_LIST_ELEM, func(a attrs) attrs { return a.counter(0, 0) })
	})
}

// natRandomFully is NF_NAT_RANGE_PROTO_RANDOM_FULLY.
const natRandomFully = 1 << 4

// Masquerade gives the connection the outgoing interface's address and a random
// port.
func (e Exprs) Masquerade() Exprs {
	return e.then("masquerade fully-random", func(a attrs) attrs {
		return a.expr("masq", func(a attrs) attrs { return a.u32(unix.NFTA_MASQ_FLAGS, natRandomFully) })
	})
}

// RejectTCP answers TCP with a reset. nft(8) does not list the match of the
// protocol.
func (e Exprs) RejectTCP() Exprs {
	return e.then("reject with tcp reset", func(a attrs) attrs {
		return Protocol.load(a, 0).cmp(unix.NFT_CMP_EQ, []byte{unix.IPPROTO_TCP}).reject(unix.NFT_REJECT_TCP_RST, 0)
	})
}

// RejectPort answers with the family's ICMP message for an unreachable port.
func (e Exprs) RejectPort(family Family) Exprs {
	code := family.pick(3, 4)
	return e.then("reject", func(a attrs) attrs { return a.reject(unix.NFT_REJECT_ICMP_UNREACH, uint8(code)) })
}

func (a attrs) reject(typ uint32, code uint8) attrs {
	return a.expr("reject", func(a attrs) attrs {
		return a.u32(unix.NFTA_REJECT_TYPE, typ).u8(unix.NFTA_REJECT_ICMP_CODE, code)
	})
}

// cmp compares the first register.
func (a attrs) cmp(op uint32, with []byte) attrs {
	return a.expr("cmp", func(a attrs) attrs {
		a = a.u32(unix.NFTA_CMP_SREG, register(0).number()).u32(unix.NFTA_CMP_OP, op)
		return a.value(unix.NFTA_CMP_DATA, with)
	})
}

// bitwise makes the register (itself & mask) ^ xor.
func (a attrs) bitwise(in register, mask, xor []byte) attrs {
	return a.expr("bitwise", func(a attrs) attrs {
		a = a.u32(unix.NFTA_BITWISE_SREG, in.number()).u32(unix.NFTA_BITWISE_DREG, in.number())
		a = a.u32(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		return a.value(unix.NFTA_BITWISE_MASK, mask).value(unix.NFTA_BITWISE_XOR, xor)
	})
}

// equal matches packets whose value has these bytes, which nft(8) lists as text.
func (e Exprs) equal(v Value, bytes []byte, text string) Exprs {
	return e.then(v.text+" "+text, func(a attrs) attrs { return v.load(a, 0).cmp(unix.NFT_CMP_EQ, bytes) })
}

// unequal matches all others.
func (e Exprs) unequal(v Value, bytes []byte, text string) Exprs {
	return e.then(v.text+" != "+text, func(a attrs) attrs { return v.load(a, 0).cmp(unix.NFT_CMP_NEQ, bytes) })
}

// word is a number as the kernel has it in a register.
func word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func (e Exprs) anyBit(v Value, bits uint32, text string) Exprs {
	return e.then(v.text+" "+text, func(a attrs) attrs {
		return v.load(a, 0).bitwise(0, word(bits), word(0)).cmp(unix.NFT_CMP_NEQ, word(0))
	})
}

// HasMark matches packets whose mark has the bit.
func (e Exprs) HasMark(bit uint32) Exprs {
	return e.anyBit(mark, bit, fmt.Sprintf("& 0x%08x != 0x%08x", bit, 0))
}

// SetMark sets a bit of the mark.
func (e Exprs) SetMark(bit uint32) Exprs { return e.changeMark("|", ^bit, bit) }

// FlipMark flips a bit of the mark, which clears one that is set.
func (e Exprs) FlipMark(bit uint32) Exprs { return e.changeMark("^", ^uint32(0), bit) }

func (e Exprs) changeMark(sign string, mask, xor uint32) Exprs {
	return e.then(fmt.Sprintf("meta mark set meta mark %s 0x%08x", sign, xor), func(a attrs) attrs {
		return mark.load(a, 0).bitwise(0, word(mask), word(xor)).expr("meta", func(a attrs) attrs {
			return a.u32(unix.NFTA_META_KEY, unix.NFT_META_MARK).u32(unix.NFTA_META_SREG, register(0).number())
		})
	})
}

const (
	ctStateNew   = 1 << 3 // NF_CT_STATE_BIT(IP_CT_NEW)
	ctStatusDNAT = 1 << 5 // IPS_DST_NAT
)

// More bits of the status of a connection.
const (
	SeenReply = 1 << 1 // IPS_SEEN_REPLY
	Assured   = 1 << 2 // IPS_ASSURED
	Confirmed = 1 << 3 // IPS_CONFIRMED
	DNATed    = ctStatusDNAT
)

// HasStatus matches packets of connections whose status has these of the bits in a mask.
func (e Exprs) HasStatus(mask, bits uint32) Exprs {
	return e.masked(ctStatus, fmt.Sprintf("& 0x%x == 0x%x", mask, bits), word(mask), word(bits))
}

// Flags of TCP.
const (
	FIN = 1 << 0
	SYN = 1 << 1
	RST = 1 << 2
	ACK = 1 << 4
)

// HasTCPFlags matches segments that have these of the flags in a mask.
func (e Exprs) HasTCPFlags(mask, flags byte) Exprs {
	return e.masked(tcpFlags, fmt.Sprintf("& 0x%x == 0x%x", mask, flags), []byte{mask}, []byte{flags})
}

// HasAnyTCPFlag matches segments that have one of the flags in a mask.
func (e Exprs) HasAnyTCPFlag(mask byte) Exprs {
	return e.then(fmt.Sprintf("%s & 0x%x != 0x0", tcpFlags.text, mask), func(a attrs) attrs {
		return tcpFlags.load(a, 0).bitwise(0, []byte{mask}, []byte{0}).cmp(unix.NFT_CMP_NEQ, []byte{0})
	})
}

// PortUnreachable matches the family's ICMP message for an unreachable port, which is about a packet of the
// connection that it belongs to.
func (e Exprs) PortUnreachable(f Family) Exprs {
	protocol, message := byte(unix.IPPROTO_ICMP), []byte{3, 3}
	if f == IP6 {
		protocol, message = unix.IPPROTO_ICMPV6, []byte{1, 4}
	}
	return e.HasProtocol(protocol).equal(icmpTypeCode, message, fmt.Sprintf("0x%x", message))
}

func (e Exprs) masked(v Value, text string, mask, bits []byte) Exprs {
	return e.then(v.text+" "+text, func(a attrs) attrs {
		return v.load(a, 0).bitwise(0, mask, make([]byte, len(mask))).cmp(unix.NFT_CMP_EQ, bits)
	})
}

// InDirection matches packets in one direction of a connection.
func (e Exprs) InDirection(d Direction) Exprs {
	return e.equal(ctDirection, []byte{byte(d)}, d.String())
}

// New matches packets of new connections.
func (e Exprs) New() Exprs { return e.anyBit(ctState, ctStateNew, "new") }

// Translated matches packets of connections whose destination was translated.
func (e Exprs) DNATed() Exprs { return e.anyBit(ctStatus, ctStatusDNAT, "dnat") }

// HasProtocol matches packets of a transport protocol (unix.IPPROTO_...).
func (e Exprs) HasProtocol(p byte) Exprs { return e.equal(Protocol, []byte{p}, ProtocolText(p)) }

// NotProtocol matches packets of other transport protocols.
func (e Exprs) NotProtocol(p byte) Exprs { return e.unequal(Protocol, []byte{p}, ProtocolText(p)) }

// ToPort matches packets to a port.
func (e Exprs) ToPort(port uint16) Exprs {
	return e.equal(DestPort, binary.BigEndian.AppendUint16(nil, port), fmt.Sprint(port))
}

// FromLocal matches packets from an address of this node, according to the routing
// table.
func (e Exprs) FromLocal() Exprs { return e.equal(sourceType, word(unix.RTN_LOCAL), "local") }

// ToLocal matches packets to an address of this node, according to the routing table.
func (e Exprs) ToLocal() Exprs { return e.equal(destType, word(unix.RTN_LOCAL), "local") }

// NotToLocal matches all others.
func (e Exprs) NotToLocal() Exprs { return e.unequal(destType, word(unix.RTN_LOCAL), "local") }

// FromInterface matches packets that came in through an interface of that name, or
// whose name starts with it.
func (e Exprs) FromInterface(name string, prefix bool) Exprs {
	bytes, text := []byte(name), strings.ReplaceAll(name, "*", `\*`)
	if prefix {
		text += "*"
	} else {
		bytes = interfaceName(name)
	}
	return e.equal(Interface, bytes, `"`+text+`"`)
}

// NotFromInterface matches packets that came in through another interface.
func (e Exprs) NotFromInterface(name string) Exprs {
	return e.unequal(Interface, interfaceName(name), `"`+name+`"`)
}

func interfaceName(name string) []byte {
	return append([]byte(name), make([]byte, unix.IFNAMSIZ-len(name))...)
}

// Within matches packets with an address in a range.
func (e Exprs) Within(addr Value, p netip.Prefix) Exprs {
	return e.compareAddr(addr, "", unix.NFT_CMP_EQ, p.Masked())
}

// NotWithin matches all others.
func (e Exprs) NotWithin(addr Value, p netip.Prefix) Exprs {
	return e.compareAddr(addr, "!= ", unix.NFT_CMP_NEQ, p.Masked())
}

func (e Exprs) compareAddr(addr Value, sign string, op uint32, p netip.Prefix) Exprs {
	text := p.String()
	if p.IsSingleIP() {
		text = p.Addr().String()
	}
	return e.then(addr.text+" "+sign+text, func(a attrs) attrs {
		return addr.Masked(p.Bits()).load(a, 0).cmp(op, p.Addr().AsSlice())
	})
}

const noRegister = ^uint32(0)

// lookup matches packets whose key is in a set, and loads the value of a map into a
// register.
func (a attrs) lookup(set string, key Concat, to uint32) attrs {
	a, _ = key.load(a, 0)
	return a.expr("lookup", func(a attrs) attrs {
		a = a.text(unix.NFTA_LOOKUP_SET, set).u32(unix.NFTA_LOOKUP_SREG, register(0).number())
		if to != noRegister {
			a = a.u32(unix.NFTA_LOOKUP_DREG, to)
		}
		return a
	})
}

// In matches packets whose key is in a set.
func (e Exprs) In(set string, key Concat) Exprs {
	return e.then(key.text()+" @"+set, func(a attrs) attrs { return a.lookup(set, key, noRegister) })
}

// VerdictMap continues with the verdict that a map has for the key.
func (e Exprs) VerdictMap(set string, key Concat) Exprs {
	return e.then(key.text()+" vmap @"+set, func(a attrs) attrs { return a.lookup(set, key, unix.NFT_REG_VERDICT) })
}

// DNATMap sends connections to the address and port that a map has for the key.
func (e Exprs) DNATMap(f Family, set string, key Concat) Exprs {
	return e.then(fmt.Sprintf("dnat %s to %s map @%s", f, key.text(), set), func(a attrs) attrs {
		return a.lookup(set, key, register(0).number()).dnat(f)
	})
}

// DNATAddrMap sends connections to the address that a map has for the key. They keep their port.
func (e Exprs) DNATAddrMap(f Family, set string, key Concat) Exprs {
	return e.then(fmt.Sprintf("dnat to %s map @%s", key.text(), set), func(a attrs) attrs {
		return a.lookup(set, key, register(0).number()).nat(f, noRegister)
	})
}

// DNAT sends connections to an address and port.
func (e Exprs) DNAT(to netip.AddrPort) Exprs {
	f := IP
	if to.Addr().Is6() {
		f = IP6
	}
	return e.then("dnat to "+to.String(), func(a attrs) attrs {
		a = a.immediate(register(0), to.Addr().AsSlice())
		return a.immediate(register(0).after(f.AddrLen()), binary.BigEndian.AppendUint16(nil, to.Port())).dnat(f)
	})
}

// dnat translates to the address in the first registers and the port after it.
func (a attrs) dnat(f Family) attrs { return a.nat(f, register(0).after(f.AddrLen()).number()) }

// nat is dnat with the port in a register, which may be none.
func (a attrs) nat(f Family, port uint32) attrs {
	return a.expr("nat", func(a attrs) attrs {
		a = a.u32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT).u32(unix.NFTA_NAT_FAMILY, uint32(f))
		a = a.u32(unix.NFTA_NAT_REG_ADDR_MIN, register(0).number())
		if port == noRegister {
			return a
		}
		return a.u32(unix.NFTA_NAT_REG_PROTO_MIN, port)
	})
}

// immediate loads bytes into a register.
func (a attrs) immediate(to register, bytes []byte) attrs {
	return a.expr("immediate", func(a attrs) attrs {
		return a.u32(unix.NFTA_IMMEDIATE_DREG, to.number()).value(unix.NFTA_IMMEDIATE_DATA, bytes)
	})
}

// Update adds a key and its data to a dynamic map, or renews its timeout.
func (e Exprs) Update(set string, key, data Concat, seconds uint32) Exprs {
	text := fmt.Sprintf("update @%s { %s timeout %s : %s }", set, key.text(), timeText(seconds), data.text())
	return e.then(text, func(a attrs) attrs {
		a, at := key.load(a, 0)
		a, _ = data.load(a, at)
		return a.expr("dynset", func(a attrs) attrs {
			a = a.text(unix.NFTA_DYNSET_SET_NAME, set).u32(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE)
			a = a.u32(unix.NFTA_DYNSET_SREG_KEY, register(0).number()).u32(unix.NFTA_DYNSET_SREG_DATA, at.number())
			return a.u64(unix.NFTA_DYNSET_TIMEOUT, uint64(seconds)*1000)
		})
	})
}

// Record adds a key to a dynamic set, or renews its timeout. If elements of the set have counters, it
// is counted.
func (e Exprs) Record(set string, key Concat, seconds uint32) Exprs {
	return e.record("update", unix.NFT_DYNSET_OP_UPDATE, set, key, seconds)
}

// RecordFirst adds a key to a dynamic set unless the set has it.
func (e Exprs) RecordFirst(set string, key Concat, seconds uint32) Exprs {
	return e.record("add", unix.NFT_DYNSET_OP_ADD, set, key, seconds)
}

func (e Exprs) record(verb string, op uint32, set string, key Concat, seconds uint32) Exprs {
	return e.then(recordText(verb, set, key, seconds), func(a attrs) attrs {
		a, _ = key.load(a, 0)
		return a.dynset(op, set, seconds)
	})
}

// RecordIn matches packets whose key is in a set, and records it in another one. The key is loaded once.
func (e Exprs) RecordIn(has, set string, key Concat, seconds uint32) Exprs {
	return e.In(has, key).then(recordText("update", set, key, seconds), func(a attrs) attrs {
		return a.dynset(unix.NFT_DYNSET_OP_UPDATE, set, seconds)
	})
}

func recordText(verb, set string, key Concat, seconds uint32) string {
	return fmt.Sprintf("%s @%s { %s timeout %s }", verb, set, key.text(), timeText(seconds))
}

// dynset changes a dynamic set by the key in the first registers.
func (a attrs) dynset(op uint32, set string, seconds uint32) attrs {
	return a.expr("dynset", func(a attrs) attrs {
		a = a.text(unix.NFTA_DYNSET_SET_NAME, set).u32(unix.NFTA_DYNSET_OP, op)
		a = a.u32(unix.NFTA_DYNSET_SREG_KEY, register(0).number())
		return a.u64(unix.NFTA_DYNSET_TIMEOUT, uint64(seconds)*1000)
	})
}

// timeText writes seconds as nft(8) does: 1d2h3m4s, without what is zero.
func timeText(seconds uint32) string {
	var b strings.Builder
	for _, unit := range []struct {
		name    string
		seconds uint32
	}{{"d", 24 * 60 * 60}, {"h", 60 * 60}, {"m", 60}, {"s", 1}} {
		if n := seconds / unit.seconds; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
		}
		seconds %= unit.seconds
	}
	return b.String()
}
