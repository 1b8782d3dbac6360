//go:build linux

package nft

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Arena holds keys and data of elements, without an allocation for each. What is
// appended between two calls of Cut is one of them.
type Arena []byte

// Cut returns what was appended since the arena had that length.
func (a *Arena) Cut(from int) []byte { return (*a)[from:len(*a):len(*a)] }

// Addr appends an address.
func (a *Arena) Addr(ip netip.Addr) {
	if ip.Is4() {
		b := ip.As4()
		*a = append(*a, b[:]...)
	} else {
		b := ip.As16()
		*a = append(*a, b[:]...)
	}
}

// Protocol appends a transport protocol.
func (a *Arena) Protocol(p byte) { *a = append(*a, p, 0, 0, 0) }

// Port appends a port.
func (a *Arena) Port(p uint16) { *a = append(*a, byte(p>>8), byte(p), 0, 0) }

// Interface appends the name of an interface.
func (a *Arena) Interface(name string) {
	var b [unix.IFNAMSIZ]byte
	copy(b[:], name)
	*a = append(*a, b[:]...)
}

// Word appends a number as Random and Constant load it, in host order.
func (a *Arena) Word(n uint32) { *a = binary.NativeEndian.AppendUint32(*a, n) }

// Decoder reads a key or data that an Arena may have encoded. Done reports at the
// end whether it was so.
type Decoder struct {
	family Family
	b      []byte
	failed bool
}

// NewDecoder returns a Decoder of a key or data in a table of that family.
func NewDecoder(f Family, b []byte) Decoder { return Decoder{family: f, b: b} }

func (d *Decoder) take(n int) []byte {
	if len(d.b) < n {
		d.failed = true
		return make([]byte, n)
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

// Addr reads an address.
func (d *Decoder) Addr() netip.Addr {
	ip, _ := netip.AddrFromSlice(d.take(d.family.AddrLen()))
	return ip
}

// Protocol reads a transport protocol.
func (d *Decoder) Protocol() byte { return d.take(WordLen)[0] }

// Port reads a port.
func (d *Decoder) Port() uint16 { return binary.BigEndian.Uint16(d.take(WordLen)) }

// Interface reads the name of an interface.
func (d *Decoder) Interface() string { return unix.ByteSliceToString(d.take(unix.IFNAMSIZ)) }

// Word reads a number.
func (d *Decoder) Word() uint32 { return binary.NativeEndian.Uint32(d.take(WordLen)) }

// Check fails the Decoder unless ok.
func (d *Decoder) Check(ok bool) { d.failed = d.failed || !ok }

// OK reports whether all that was read was there and passed its checks.
func (d *Decoder) OK() bool { return !d.failed }

// Done reports the same, and whether nothing is left.
func (d *Decoder) Done() bool { return !d.failed && len(d.b) == 0 }
