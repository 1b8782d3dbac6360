//go:build linux

package ctnetlink

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/nfnetlink"
)

// Entry is an entry of the table.
type Entry struct {
	Protocol inet.Protocol
	From     netip.AddrPort // the client
	To       netip.AddrPort // where the client sends to
	By       netip.AddrPort // the source of replies: the endpoint
	ReplyTo  netip.AddrPort // where replies go: the client, or the address that masquerades it
	Zoned    bool           // in a conntrack zone other than the default
	State    uint8          // of a TCP connection
	Replied  bool           // packets were seen in both directions
	// Offloaded says that a flow table of nftables forwards its packets.
	Offloaded bool
	// Lasts is for how much longer it stays if there are no packets, in whole seconds.
	Lasts time.Duration

	// Attributes by which the kernel identifies the entry. They refer to what it was
	// decoded from.
	Family          uint8
	Tuple, Zone, ID []byte
}

// Over reports whether a TCP connection has ended in both directions.
func (e *Entry) Over() bool { return e.State > TCPLastAck }

// Established reports whether a TCP connection is established and has not
// ended.
func (e *Entry) Established() bool { return e.State >= TCPEstablished && !e.Over() }

// Translated reports whether the destination was translated.
func (e *Entry) Translated() bool { return e.By != e.To }

// Clone returns a copy that does not refer to what it was decoded from.
func (e *Entry) Clone() Entry {
	c := *e
	c.Tuple, c.Zone, c.ID = slices.Clone(e.Tuple), slices.Clone(e.Zone), slices.Clone(e.ID)
	return c
}

// Decode parses a message after its netlink header, and reports whether it is a complete entry.
func (e *Entry) Decode(payload []byte) bool {
	if len(payload) < nfnetlink.GenHeaderLen {
		return false
	}
	*e = Entry{Family: payload[0]}
	var orig, reply tuple
	for typ, v := range nfnetlink.Attrs(payload[nfnetlink.GenHeaderLen:]) {
		switch typ {
		case TupleOrig:
			e.Tuple = v
			orig.decode(v)
		case TupleReply:
			reply.decode(v)
		case Zone:
			e.Zone, e.Zoned = v, true
		case ID:
			e.ID = v
		case Status:
			if len(v) == 4 {
				status := binary.BigEndian.Uint32(v)
				e.Replied, e.Offloaded = status&SeenReply != 0, status&Offloaded != 0
			}
		case Timeout:
			if len(v) == 4 {
				e.Lasts = time.Duration(binary.BigEndian.Uint32(v)) * time.Second
			}
		case ProtoInfo:
			e.State = tcpState(v)
		}
	}
	e.Protocol = orig.protocol
	e.From = netip.AddrPortFrom(orig.src, orig.srcPort)
	e.To = netip.AddrPortFrom(orig.dst, orig.dstPort)
	e.By = netip.AddrPortFrom(reply.src, reply.srcPort)
	e.ReplyTo = netip.AddrPortFrom(reply.dst, reply.dstPort)
	e.Zoned = e.Zoned || orig.zoned || reply.zoned
	if e.Offloaded && e.Protocol == inet.TCP {
		e.State = TCPEstablished // the kernel leaves it out: others are in no flow table
	}
	return e.From.IsValid() && e.To.IsValid() && e.By.IsValid() && e.ReplyTo.IsValid() && len(e.ID) == 4
}

// tuple is one direction of an entry.
type tuple struct {
	protocol         inet.Protocol
	src, dst         netip.Addr
	srcPort, dstPort uint16
	zoned            bool
}

func (t *tuple) decode(attrs []byte) {
	for typ, v := range nfnetlink.Attrs(attrs) {
		switch typ {
		case TupleIP:
			t.decodeIP(v)
		case TupleProto:
			t.decodeProto(v)
		case TupleZone:
			t.zoned = true
		}
	}
}

// decodeIP leaves an address of the wrong length invalid.
func (t *tuple) decodeIP(attrs []byte) {
	for typ, v := range nfnetlink.Attrs(attrs) {
		addr, _ := netip.AddrFromSlice(v)
		switch {
		case typ == IPv4Src && addr.Is4(), typ == IPv6Src && addr.Is6():
			t.src = addr
		case typ == IPv4Dst && addr.Is4(), typ == IPv6Dst && addr.Is6():
			t.dst = addr
		}
	}
}

func (t *tuple) decodeProto(attrs []byte) {
	for typ, v := range nfnetlink.Attrs(attrs) {
		switch {
		case typ == ProtoNum && len(v) == 1:
			t.protocol = inet.Protocol(v[0])
		case typ == ProtoSrcPort && len(v) == 2:
			t.srcPort = binary.BigEndian.Uint16(v)
		case typ == ProtoDstPort && len(v) == 2:
			t.dstPort = binary.BigEndian.Uint16(v)
		}
	}
}

// tcpState returns the state in the attribute ProtoInfo of an entry, 0 for other protocols.
func tcpState(info []byte) uint8 {
	for typ, v := range nfnetlink.Attrs(info) {
		if typ != ProtoInfoTCP {
			continue
		}
		for typ, v := range nfnetlink.Attrs(v) {
			if typ == ProtoInfoTCPState && len(v) == 1 {
				return v[0]
			}
		}
	}
	return 0
}

// Flow is a connection, as one of its ends sees it.
type Flow struct {
	Protocol inet.Protocol
	From, To netip.AddrPort
}

// reply is the flow the other way round.
func (f Flow) reply() Flow { return Flow{f.Protocol, f.To, f.From} }

// AppendTuple appends a flow as one direction of an entry, TupleOrig or TupleReply.
func AppendTuple(b []byte, direction uint16, f Flow) []byte {
	src, dst := uint16(IPv4Src), uint16(IPv4Dst)
	if f.To.Addr().Is6() {
		src, dst = IPv6Src, IPv6Dst
	}
	ip := nfnetlink.AppendAttr(nil, src, f.From.Addr().AsSlice())
	ip = nfnetlink.AppendAttr(ip, dst, f.To.Addr().AsSlice())
	proto := nfnetlink.AppendAttr(nil, ProtoNum, []byte{byte(f.Protocol)})
	proto = nfnetlink.AppendAttr(proto, ProtoSrcPort, binary.BigEndian.AppendUint16(nil, f.From.Port()))
	proto = nfnetlink.AppendAttr(proto, ProtoDstPort, binary.BigEndian.AppendUint16(nil, f.To.Port()))
	tuple := nfnetlink.AppendAttr(nil, nfnetlink.Nested|TupleIP, ip)
	return nfnetlink.AppendAttr(b, nfnetlink.Nested|direction, nfnetlink.AppendAttr(tuple, nfnetlink.Nested|TupleProto, proto))
}

// AppendTCPState appends the state of a TCP connection.
func AppendTCPState(b []byte, state uint8) []byte {
	tcp := nfnetlink.AppendAttr(nil, ProtoInfoTCPState, []byte{state})
	return nfnetlink.AppendAttr(b, nfnetlink.Nested|ProtoInfo, nfnetlink.AppendAttr(nil, nfnetlink.Nested|ProtoInfoTCP, tcp))
}

// AppendHeader begins a message about an entry of the family of an address.
func AppendHeader(b []byte, typ, flags uint16, at netip.Addr) []byte {
	family := uint8(unix.NFPROTO_IPV4)
	if at.Is6() {
		family = unix.NFPROTO_IPV6
	}
	return nfnetlink.AppendNetfilterHeader(b, typ, flags, family, 0)
}
