//go:build linux

package nfnetlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"
)

// The lengths of the two headers of a message.
const (
	HeaderLen    = unix.SizeofNlMsghdr
	GenHeaderLen = 4 // struct nfgenmsg
)

// Header is the netlink header of a message, without its length.
type Header struct {
	Type, Flags uint16
	Seq, Port   uint32
}

// AppendHeader appends the netlink header of a request, without length and number.
func AppendHeader(b []byte, typ, flags uint16) []byte {
	b = append(b, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence and port
}

// AppendNetfilterHeader appends both headers of a request to netfilter.
func AppendNetfilterHeader(b []byte, typ, flags uint16, family uint8, resource uint16) []byte {
	b = append(AppendHeader(b, typ, flags), family, unix.NFNETLINK_V0)
	return binary.BigEndian.AppendUint16(b, resource)
}

// EndMessage sets the length of the message that starts at an offset and ends with b.
func EndMessage(b []byte, at int) { binary.NativeEndian.PutUint32(b[at:], uint32(len(b)-at)) }

// RequestAck has the kernel acknowledge the message that starts at an offset.
func RequestAck(b []byte, at int) { addFlags(b, at, unix.NLM_F_ACK) }

// Offsets in the netlink header.
const (
	flagsAt = 6
	seqAt   = 8
)

func flags(b []byte, at int) uint16 { return binary.NativeEndian.Uint16(b[at+flagsAt:]) }

func addFlags(b []byte, at int, more uint16) {
	binary.NativeEndian.PutUint16(b[at+flagsAt:], flags(b, at)|more)
}

func setSeq(b []byte, at int, seq uint32) { binary.NativeEndian.PutUint32(b[at+seqAt:], seq) }

// EachMessage calls f for each message, with its contents after the netlink header, up
// to one that is malformed.
func EachMessage(b []byte, f func(Header, []byte) error) error {
	for len(b) >= HeaderLen {
		length := int(binary.NativeEndian.Uint32(b))
		if length < HeaderLen || length > len(b) {
			return ErrMalformed
		}
		h := Header{
			Type:  binary.NativeEndian.Uint16(b[4:]),
			Flags: binary.NativeEndian.Uint16(b[6:]),
			Seq:   binary.NativeEndian.Uint32(b[8:]),
			Port:  binary.NativeEndian.Uint32(b[12:]),
		}
		if err := f(h, b[HeaderLen:length]); err != nil {
			return err
		}
		b = b[min(Align(length), len(b)):]
	}
	return nil
}

// AckError parses an acknowledgement. It returns nil, or the kernel's error, with its
// explanation if there is one.
func AckError(h Header, payload []byte) error {
	if len(payload) < 4+HeaderLen {
		return ErrMalformed
	}
	return errorIn(h, payload, 4+HeaderLen)
}

// doneError parses the end of a dump. It returns the error with which the kernel ended it
// early, if it did.
func doneError(h Header, payload []byte) error {
	if len(payload) < 4 {
		return nil
	}
	return errorIn(h, payload, 4)
}

// errorIn returns the error that a payload begins with. Its explanation is among the
// attributes at an offset.
func errorIn(h Header, payload []byte, attrs int) error {
	code := int32(binary.NativeEndian.Uint32(payload))
	if code >= 0 {
		return nil
	}
	err := error(unix.Errno(-code))
	if h.Flags&unix.NLM_F_ACK_TLVS == 0 {
		return err
	}
	for typ, v := range Attrs(payload[attrs:]) {
		if typ == unix.NLMSGERR_ATTR_MSG {
			return fmt.Errorf("%w (%s)", err, bytes.TrimSpace(bytes.TrimRight(v, "\x00")))
		}
	}
	return err
}

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
