package nfnetlink

import (
	"encoding/binary"
	"errors"
	"iter"
)

// Netlink attributes are a length, a type and a value, padded to four bytes.
// Numbers inside netfilter attributes are big-endian, the header is not.
const (
	// AttrHeaderLen is the length of an attribute's header.
	AttrHeaderLen = 4
	// Nested is set in the type of an attribute that is made of attributes.
	Nested = 0x8000

	attrTypeMax = 0x3fff
)

// ErrMalformed is the error of a message that cannot be parsed.
var ErrMalformed = errors.New("malformed netlink message")

// Align returns the length of n bytes with padding.
func Align(n int) int { return (n + 3) &^ 3 }

// Attrs yields the type and value of encoded attributes, up to one that is malformed.
func Attrs(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= AttrHeaderLen {
			length := int(binary.NativeEndian.Uint16(b))
			typ := binary.NativeEndian.Uint16(b[2:]) & attrTypeMax
			if length < AttrHeaderLen || length > len(b) {
				return
			}
			if !yield(typ, b[AttrHeaderLen:length]) {
				return
			}
			b = b[min(Align(length), len(b)):]
		}
	}
}

// AppendAttr appends an attribute.
func AppendAttr(b []byte, typ uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(AttrHeaderLen+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	for n := len(value); n%4 != 0; n++ {
		b = append(b, 0)
	}
	return b
}
