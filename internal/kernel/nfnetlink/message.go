package nfnetlink

import (
	"bytes"
	"encoding/binary"
	"fmt"

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

// AppendHeader appends both headers of a message, without length and number: see
// EndMessage and SetSeq.
func AppendHeader(b []byte, typ, flags uint16, family uint8, resource uint16) []byte {
	b = append(b, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence and port
	b = append(b, family, unix.NFNETLINK_V0)
	return binary.BigEndian.AppendUint16(b, resource)
}

// EndMessage sets the length of the message that starts at an offset and ends with b.
func EndMessage(b []byte, at int) { binary.NativeEndian.PutUint32(b[at:], uint32(len(b)-at)) }

// SetSeq numbers the message that starts at an offset.
func SetSeq(b []byte, at int, seq uint32) { binary.NativeEndian.PutUint32(b[at+8:], seq) }

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
	code := int32(binary.NativeEndian.Uint32(payload))
	if code == 0 {
		return nil
	}
	err := error(unix.Errno(-code))
	if h.Flags&unix.NLM_F_ACK_TLVS == 0 {
		return err
	}
	for typ, v := range Attrs(payload[4+HeaderLen:]) {
		if typ == unix.NLMSGERR_ATTR_MSG {
			return fmt.Errorf("%w (%s)", err, bytes.TrimSpace(bytes.TrimRight(v, "\x00")))
		}
	}
	return err
}
