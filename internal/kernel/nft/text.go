//go:build linux

package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// protocolsText is how nft(8) lists the match of Rule.Protocols.
const protocolsText = "meta l4proto { tcp, udp, sctp }"

// ProtocolText is what nft(8) calls a transport protocol.
func ProtocolText(p byte) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return fmt.Sprint(p)
}

// CounterText is how nft(8) lists a counter.
func CounterText(packets, bytes uint64) string {
	return fmt.Sprintf("counter packets %d bytes %d", packets, bytes)
}

// String returns the verdict as nft(8) lists it.
func (v *Verdict) String() string {
	switch v.Code {
	case DropCode:
		return "drop"
	case AcceptCode:
		return "accept"
	case JumpCode:
		return "jump " + v.Chain
	case GotoCode:
		return "goto " + v.Chain
	case ReturnCode:
		return "return"
	}
	return fmt.Sprintf("verdict %d", v.Code)
}

// datatypes are nft(8)'s names of datatypes.
var datatypes = map[uint32]string{
	idIP4: "ipv4_addr", idIP6: "ipv6_addr", idProtocol: "inet_proto", idPort: "inet_service",
}

// text is the type in the declaration of a set, after type or typeof.
func (t Type) text() string {
	if t.Verdict {
		return "verdict"
	}
	parts := make([]string, len(t.Parts))
	for i, p := range t.Parts {
		if parts[i] = datatypes[p.id]; t.Typeof {
			parts[i] = p.text
		}
	}
	return strings.Join(parts, " . ")
}

func (t Type) valueText(b []byte) string {
	parts := make([]string, len(t.Parts))
	for i, p := range t.Parts {
		n := min(nfnetlink.Align(p.len), len(b))
		parts[i], b = p.valueText(b[:n]), b[n:]
	}
	return strings.Join(parts, " . ")
}

func addrOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (p Value) valueText(b []byte) string {
	switch {
	case len(b) < p.len:
	case p.id == idIP4 || p.id == idIP6:
		return addrOf(b[:p.len]).String()
	case p.id == idProtocol:
		return ProtocolText(b[0])
	case p.id == idPort:
		return fmt.Sprint(binary.BigEndian.Uint16(b))
	case p.id == idInteger:
		return fmt.Sprint(binary.NativeEndian.Uint32(b))
	}
	return fmt.Sprintf("%#x", b)
}

// KeyText is the key of an element as nft(8) lists it.
func (s *Set) KeyText(e *Element) string { return s.Key.valueText(e.Key) }

// Text is an element of the set as nft(8) lists it.
func (s *Set) Text(e *Element) string {
	text := s.KeyText(e)
	if s.Counter {
		text += " " + CounterText(e.Packets, e.Bytes)
	}
	switch {
	case e.Verdict != nil:
		text += " : " + e.Verdict.String()
	case s.isMap():
		text += " : " + s.Data.valueText(e.Data)
	}
	return text
}
