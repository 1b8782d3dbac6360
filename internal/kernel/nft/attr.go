//go:build linux

package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// maxAttr is the maximum length of an attribute.
const maxAttr = 1<<16 - 1

// attrs is encoded attributes, to which more can be appended.
type attrs []byte

func (a attrs) header(typ uint16, length int) attrs {
	a = binary.NativeEndian.AppendUint16(a, uint16(nfnetlink.AttrHeaderLen+length))
	return binary.NativeEndian.AppendUint16(a, typ)
}

func (a attrs) pad() attrs {
	for len(a)%4 != 0 {
		a = append(a, 0)
	}
	return a
}

func (a attrs) bytes(typ uint16, v []byte) attrs {
	return append(a.header(typ, len(v)), v...).pad()
}

func (a attrs) text(typ uint16, v string) attrs {
	a = append(a.header(typ, len(v)+1), v...)
	return append(a, 0).pad()
}

func (a attrs) u8(typ uint16, v uint8) attrs {
	return append(a.header(typ, 1), v, 0, 0, 0)
}

func (a attrs) u32(typ uint16, v uint32) attrs {
	return binary.BigEndian.AppendUint32(a.header(typ, 4), v)
}

func (a attrs) u64(typ uint16, v uint64) attrs {
	return binary.BigEndian.AppendUint64(a.header(typ, 8), v)
}

// open starts a nested attribute. It returns the offset for close.
func (a attrs) open(typ uint16) (attrs, int) {
	return a.header(typ|nfnetlink.Nested, 0), len(a)
}

func (a attrs) close(at int) {
	binary.NativeEndian.PutUint16(a[at:], uint16(len(a)-at))
}

func (a attrs) nested(typ uint16, fill func(attrs) attrs) attrs {
	a, at := a.open(typ)
	a = fill(a)
	a.close(at)
	return a
}

// expr appends an expression with the attributes that fill appends.
func (a attrs) expr(name string, fill func(attrs) attrs) attrs {
	return a.nested(unix.NFTA_LIST_ELEM, func(a attrs) attrs {
		a = a.text(unix.NFTA_EXPR_NAME, name)
		return a.nested(unix.NFTA_EXPR_DATA, fill)
	})
}

func (a attrs) value(typ uint16, v []byte) attrs {
	return a.nested(typ, func(a attrs) attrs { return a.bytes(unix.NFTA_DATA_VALUE, v) })
}

func (a attrs) verdict(typ uint16, v *Verdict) attrs {
	return a.nested(typ, func(a attrs) attrs {
		return a.nested(unix.NFTA_DATA_VERDICT, func(a attrs) attrs {
			a = a.u32(unix.NFTA_VERDICT_CODE, uint32(v.Code))
			if v.Chain != "" {
				a = a.text(unix.NFTA_VERDICT_CHAIN, v.Chain)
			}
			return a
		})
	})
}

// get returns the value of an attribute, nil if there is none.
func (a attrs) get(typ uint16) attrs {
	for t, v := range nfnetlink.Attrs(a) {
		if t == typ {
			return v
		}
	}
	return nil
}

func (a attrs) getU32(typ uint16) uint32  { return toU32(a.get(typ)) }
func (a attrs) getU64(typ uint16) uint64  { return toU64(a.get(typ)) }
func (a attrs) getText(typ uint16) string { return toText(a.get(typ)) }

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
