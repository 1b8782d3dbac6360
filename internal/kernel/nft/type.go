//go:build linux

package nft

import (
	"encoding/binary"

	"sluice/internal/kernel/nfnetlink"
)

// Type is the type of a set's keys or values. The kernel only needs lengths; the parts
// are for nft(8), so that it can list the set and load its listing.
type Type struct {
	Parts Concat
	// Typeof makes nft(8) list the type as expressions. It needs that for parts without
	// a datatype (numgen); nft 1.0.6 does not support it for maps that a rule updates.
	Typeof bool
	// Verdict is the type of verdict maps; it has no parts.
	Verdict bool
}

// Numbers that nft(8) uses for datatypes and in userdata.
const (
	idInteger   = 4
	idIP4       = 7
	idIP6       = 8
	idEther     = 9
	idProtocol  = 12
	idPort      = 13
	idInterface = 41

	kindVerdict = 1
	kindPayload = 7
	kindMeta    = 9
	kindConcat  = 13
	kindNumgen  = 23

	descIP    = 12
	descIP6   = 13
	descTH    = 11
	descEther = 17
)

// VerdictType is the data type of verdict maps.
var VerdictType = Type{Verdict: true}

const verdictTypeID = 0xffffff00

// verdictLen is the length of a verdict for the kernel.
const verdictLen = 16

// Len returns the length in registers.
func (t Type) Len() int {
	if t.Verdict {
		return verdictLen
	}
	n := 0
	for _, p := range t.Parts {
		n += nfnetlink.Align(p.len)
	}
	if len(t.Parts) == 1 {
		n = t.Parts[0].len
	}
	return n
}

func (t Type) id() uint32 {
	if t.Verdict {
		return verdictTypeID
	}
	var id uint32
	for _, p := range t.Parts {
		id = id<<6 | p.id
	}
	return id
}

// The userdata of a set is triples of type, length and value; type and length have one
// byte each.
const (
	udKeyByteOrder  = 0
	udDataByteOrder = 1
	udKeyTypeof     = 3
	udDataTypeof    = 4
	udDataInterval  = 6

	// nft's numbers for the order of the host and of the network.
	hostEndian = 1
	bigEndian  = 2
)

func tlv(b []byte, typ byte, v []byte) []byte {
	return append(append(b, typ, byte(len(v))), v...)
}

func tlvU32(b []byte, typ byte, v uint32) []byte {
	return tlv(b, typ, binary.NativeEndian.AppendUint32(nil, v))
}

// userdata returns what nft(8) stores with such a set.
func (s *Set) userdata() []byte {
	b := tlvU32(nil, udKeyByteOrder, s.Key.byteOrder())
	if s.isMap() {
		b = tlvU32(b, udDataByteOrder, 0)
	}
	if len(s.Key.Parts) > 1 || s.Key.Typeof {
		b = tlv(b, udKeyTypeof, s.Key.typeof())
	}
	if s.isMap() {
		if s.Data.Verdict {
			if s.Key.Typeof {
				b = tlv(b, udDataTypeof, typeofExpr(kindVerdict, nil))
			}
		} else {
			b = tlv(b, udDataTypeof, s.Data.typeof())
		}
		b = tlvU32(b, udDataInterval, 0)
	}
	return b
}

func (t Type) byteOrder() uint32 {
	if len(t.Parts) != 1 {
		return 0
	}
	if id := t.Parts[0].id; id == idInteger || id == idInterface {
		return hostEndian
	}
	return bigEndian
}

func typeofExpr(kind uint32, body []byte) []byte {
	return tlv(tlvU32(nil, 0, kind), 1, body)
}

func (t Type) typeof() []byte {
	if !t.Typeof {
		return typeofExpr(kindConcat, nil)
	}
	if len(t.Parts) == 1 {
		return t.Parts[0].typeof()
	}
	var parts []byte
	for i, p := range t.Parts {
		parts = tlv(parts, byte(i), p.typeof())
	}
	return typeofExpr(kindConcat, parts)
}

func (v Value) typeof() []byte {
	var body []byte
	for j, attr := range v.attrs {
		body = tlvU32(body, byte(j), attr)
	}
	return typeofExpr(v.kind, body)
}

func (s *Set) isMap() bool { return s.Data.Verdict || len(s.Data.Parts) > 0 }
