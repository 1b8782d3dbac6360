package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"sluice/internal/nfnetlink"
)

// maxAttr is how much fits into one attribute, whose length is a uint16.
const maxAttr = 1<<16 - 1

// Attrs is a run of encoded attributes to which more are appended.
type Attrs []byte

func (a Attrs) header(typ uint16, length int) Attrs {
	a = binary.NativeEndian.AppendUint16(a, uint16(nfnetlink.AttrHeaderLen+length))
	return binary.NativeEndian.AppendUint16(a, typ)
}

func (a Attrs) pad() Attrs {
	for len(a)%4 != 0 {
		a = append(a, 0)
	}
	return a
}

func (a Attrs) bytes(typ uint16, v []byte) Attrs {
	return append(a.header(typ, len(v)), v...).pad()
}

func (a Attrs) text(typ uint16, v string) Attrs {
	a = append(a.header(typ, len(v)+1), v...)
	return append(a, 0).pad()
}

func (a Attrs) u8(typ uint16, v uint8) Attrs {
	return append(a.header(typ, 1), v, 0, 0, 0)
}

func (a Attrs) u32(typ uint16, v uint32) Attrs {
	return binary.BigEndian.AppendUint32(a.header(typ, 4), v)
}

func (a Attrs) u64(typ uint16, v uint64) Attrs {
	return binary.BigEndian.AppendUint64(a.header(typ, 8), v)
}

// open starts a nested attribute; close it with the offset that open returned.
func (a Attrs) open(typ uint16) (Attrs, int) {
	return a.header(typ|nfnetlink.Nested, 0), len(a)
}

func (a Attrs) close(at int) {
	binary.NativeEndian.PutUint16(a[at:], uint16(len(a)-at))
}

// nested appends what fill appends, as one nested attribute.
func (a Attrs) nested(typ uint16, fill func(Attrs) Attrs) Attrs {
	a, at := a.open(typ)
	a = fill(a)
	a.close(at)
	return a
}

// expr appends an expression with the attributes that fill appends.
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

func toU32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func toU64(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func toText(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == 0 {
		b = b[:n-1]
	}
	return string(b)
}
