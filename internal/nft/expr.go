package nft

import (
	"golang.org/x/sys/unix"

	"sluice/internal/nfnetlink"
)

// Register is a 32-bit register, from 0 to 15. Longer values lie in several.
type Register uint32

// reg is the kernel's number for it.
func (r Register) reg() uint32 { return unix.NFT_REG32_00 + uint32(r) }

// After is the register behind a value of that many bytes.
func (r Register) After(bytes int) Register { return r + Register(nfnetlink.Align(bytes)/4) }

// expr appends an expression of that name with the attributes that fill appends.
func (a Attrs) expr(name string, fill func(Attrs) Attrs) Attrs {
	return a.nested(unix.NFTA_LIST_ELEM, func(a Attrs) Attrs {
		a = a.text(unix.NFTA_EXPR_NAME, name)
		return a.nested(unix.NFTA_EXPR_DATA, fill)
	})
}

func (a Attrs) value(typ uint16, v []byte) Attrs {
	return a.nested(typ, func(a Attrs) Attrs { return a.bytes(unix.NFTA_DATA_VALUE, v) })
}

func (a Attrs) verdict(typ uint16, v *Verdict) Attrs {
	return a.nested(typ, func(a Attrs) Attrs {
		return a.nested(unix.NFTA_DATA_VERDICT, func(a Attrs) Attrs {
			a = a.u32(unix.NFTA_VERDICT_CODE, uint32(v.Code))
			if v.Chain != "" {
				a = a.text(unix.NFTA_VERDICT_CHAIN, v.Chain)
			}
			return a
		})
	})
}

// Network loads bytes of the network header.
func (a Attrs) Network(to Register, offset, length uint32) Attrs {
	return a.payload(to, unix.NFT_PAYLOAD_NETWORK_HEADER, offset, length)
}

// Transport loads bytes of the transport header.
func (a Attrs) Transport(to Register, offset, length uint32) Attrs {
	return a.payload(to, unix.NFT_PAYLOAD_TRANSPORT_HEADER, offset, length)
}

func (a Attrs) payload(to Register, base, offset, length uint32) Attrs {
	return a.expr("payload", func(a Attrs) Attrs {
		a = a.u32(unix.NFTA_PAYLOAD_DREG, to.reg())
		a = a.u32(unix.NFTA_PAYLOAD_BASE, base)
		a = a.u32(unix.NFTA_PAYLOAD_OFFSET, offset)
		return a.u32(unix.NFTA_PAYLOAD_LEN, length)
	})
}

// Meta loads something the kernel knows of the packet (unix.NFT_META_...).
func (a Attrs) Meta(to Register, key uint32) Attrs {
	return a.expr("meta", func(a Attrs) Attrs {
		return a.u32(unix.NFTA_META_DREG, to.reg()).u32(unix.NFTA_META_KEY, key)
	})
}

// SetMeta stores into the packet what is in a register.
func (a Attrs) SetMeta(key uint32, from Register) Attrs {
	return a.expr("meta", func(a Attrs) Attrs {
		return a.u32(unix.NFTA_META_KEY, key).u32(unix.NFTA_META_SREG, from.reg())
	})
}

// Directions of Conntrack.
const (
	Original uint8 = 0
	Reply    uint8 = 1
)

// Conntrack loads something of the packet's connection (unix.NFT_CT_...).
func (a Attrs) Conntrack(to Register, key uint32) Attrs {
	return a.expr("ct", func(a Attrs) Attrs {
		return a.u32(unix.NFTA_CT_DREG, to.reg()).u32(unix.NFTA_CT_KEY, key)
	})
}

// ConntrackTuple loads a part of the connection's tuple in one direction.
func (a Attrs) ConntrackTuple(to Register, key uint32, direction uint8) Attrs {
	return a.expr("ct", func(a Attrs) Attrs {
		a = a.u32(unix.NFTA_CT_DREG, to.reg()).u32(unix.NFTA_CT_KEY, key)
		return a.u8(unix.NFTA_CT_DIRECTION, direction)
	})
}

// Equal goes on only if the register holds v.
func (a Attrs) Equal(in Register, v []byte) Attrs { return a.cmp(unix.NFT_CMP_EQ, in, v) }

// NotEqual goes on only if the register does not hold v.
func (a Attrs) NotEqual(in Register, v []byte) Attrs { return a.cmp(unix.NFT_CMP_NEQ, in, v) }

func (a Attrs) cmp(op uint32, in Register, v []byte) Attrs {
	return a.expr("cmp", func(a Attrs) Attrs {
		a = a.u32(unix.NFTA_CMP_SREG, in.reg()).u32(unix.NFTA_CMP_OP, op)
		return a.value(unix.NFTA_CMP_DATA, v)
	})
}

// Bitwise makes the register (itself & mask) ^ xor.
func (a Attrs) Bitwise(in Register, mask, xor []byte) Attrs {
	return a.expr("bitwise", func(a Attrs) Attrs {
		a = a.u32(unix.NFTA_BITWISE_SREG, in.reg()).u32(unix.NFTA_BITWISE_DREG, in.reg())
		a = a.u32(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		return a.value(unix.NFTA_BITWISE_MASK, mask).value(unix.NFTA_BITWISE_XOR, xor)
	})
}

// InSet goes on only if the key at the register is in the set.
func (a Attrs) InSet(set string, key Register) Attrs { return a.lookup(set, key, nil) }

// Map goes on only if the key is in the map, and loads its value.
func (a Attrs) Map(set string, key, to Register) Attrs {
	reg := to.reg()
	return a.lookup(set, key, &reg)
}

// VerdictMap goes on with the verdict that the map has for the key.
func (a Attrs) VerdictMap(set string, key Register) Attrs {
	reg := uint32(unix.NFT_REG_VERDICT)
	return a.lookup(set, key, &reg)
}

func (a Attrs) lookup(set string, key Register, to *uint32) Attrs {
	return a.expr("lookup", func(a Attrs) Attrs {
		a = a.text(unix.NFTA_LOOKUP_SET, set).u32(unix.NFTA_LOOKUP_SREG, key.reg())
		if to != nil {
			a = a.u32(unix.NFTA_LOOKUP_DREG, *to)
		}
		return a
	})
}

// protocolsSet is the name pattern of a rule's anonymous set of protocols; the
// kernel fills the number in.
const protocolsSet = "__set%d"

// lookupProtocols goes on only for TCP, UDP and SCTP.
func (a Attrs) lookupProtocols(in Register, id uint32) Attrs {
	a = a.Meta(in, unix.NFT_META_L4PROTO)
	return a.expr("lookup", func(a Attrs) Attrs {
		a = a.text(unix.NFTA_LOOKUP_SET, protocolsSet).u32(unix.NFTA_LOOKUP_SREG, in.reg())
		return a.u32(unix.NFTA_LOOKUP_SET_ID, id)
	})
}

// Random loads a random number from offset on, below offset plus modulus.
func (a Attrs) Random(to Register, modulus, offset uint32) Attrs {
	return a.expr("numgen", func(a Attrs) Attrs {
		a = a.u32(unix.NFTA_NG_DREG, to.reg()).u32(unix.NFTA_NG_MODULUS, modulus)
		return a.u32(unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM).u32(unix.NFTA_NG_OFFSET, offset)
	})
}

// DNAT sends the connection to the address and port at the registers.
func (a Attrs) DNAT(family Family, addr, port Register) Attrs {
	return a.expr("nat", func(a Attrs) Attrs {
		a = a.u32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT).u32(unix.NFTA_NAT_FAMILY, uint32(family))
		a = a.u32(unix.NFTA_NAT_REG_ADDR_MIN, addr.reg())
		return a.u32(unix.NFTA_NAT_REG_PROTO_MIN, port.reg())
	})
}

// natRandomFully is NF_NAT_RANGE_PROTO_RANDOM_FULLY.
const natRandomFully = 1 << 4

// Masquerade gives the connection the outgoing interface's address and a
// random port.
func (a Attrs) Masquerade() Attrs {
	return a.expr("masq", func(a Attrs) Attrs { return a.u32(unix.NFTA_MASQ_FLAGS, natRandomFully) })
}

// RejectTCP answers with a reset.
func (a Attrs) RejectTCP() Attrs {
	return a.expr("reject", func(a Attrs) Attrs {
		return a.u32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST).u8(unix.NFTA_REJECT_ICMP_CODE, 0)
	})
}

// RejectPort answers with the family's ICMP message for an unreachable port.
func (a Attrs) RejectPort(family Family) Attrs {
	code := uint8(3)
	if family == IP6 {
		code = 4
	}
	return a.expr("reject", func(a Attrs) Attrs {
		return a.u32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH).u8(unix.NFTA_REJECT_ICMP_CODE, code)
	})
}

// Verdict ends the rule with a verdict.
func (a Attrs) Verdict(v Verdict) Attrs {
	return a.expr("immediate", func(a Attrs) Attrs {
		a = a.u32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		return a.verdict(unix.NFTA_IMMEDIATE_DATA, &v)
	})
}

// SourceType loads the type of address (RTN_...) that the source is here, DestType
// the same of the destination.
func (a Attrs) SourceType(to Register) Attrs { return a.addressType(to, unix.NFTA_FIB_F_SADDR) }
func (a Attrs) DestType(to Register) Attrs   { return a.addressType(to, unix.NFTA_FIB_F_DADDR) }

func (a Attrs) addressType(to Register, of uint32) Attrs {
	return a.expr("fib", func(a Attrs) Attrs {
		a = a.u32(unix.NFTA_FIB_DREG, to.reg()).u32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE)
		return a.u32(unix.NFTA_FIB_FLAGS, of)
	})
}

// UpdateMap adds an element to a dynamic map, or renews its time-out.
func (a Attrs) UpdateMap(set string, key, data Register, seconds uint32) Attrs {
	return a.expr("dynset", func(a Attrs) Attrs {
		a = a.text(unix.NFTA_DYNSET_SET_NAME, set).u32(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE)
		a = a.u32(unix.NFTA_DYNSET_SREG_KEY, key.reg()).u32(unix.NFTA_DYNSET_SREG_DATA, data.reg())
		return a.u64(unix.NFTA_DYNSET_TIMEOUT, uint64(seconds)*1000)
	})
}
