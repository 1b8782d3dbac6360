package conntrack

import (
	"encoding/binary"
	"net/netip"

	"sluice/internal/conntrack/cta"
	"sluice/internal/model"
	"sluice/internal/nfnetlink"
	"sluice/internal/plan"
)

// States of a TCP connection (linux/netfilter/nf_conntrack_tcp.h).
const (
	tcpEstablished = 3
	tcpLastAck     = 6
)

// flow is an entry of the table, as far as it matters here.
type flow struct {
	protocol model.Protocol
	from     netip.AddrPort // the client
	to       netip.AddrPort // where the client sends to
	by       netip.AddrPort // who answers
	replyTo  netip.AddrPort // whom the answers go to: the client, or who stands in for it
	zoned    bool           // belongs to a conntrack zone other than the default
	state    uint8          // of a TCP connection

	// Attributes by which the kernel knows the entry. They lie in the buffer
	// that the entry was read into.
	family          uint8
	tuple, zone, id []byte
}

// key is that of a frontend on the very address that the client sends to.
func (f *flow) key() plan.Key {
	return plan.Key{Addr: f.to.Addr(), Port: f.to.Port(), Protocol: f.protocol}
}

// nodePortKey is that of a node port, if the client sends to one.
func (f *flow) nodePortKey() plan.Key {
	return plan.NodePortKey(model.FamilyOf(f.to.Addr()), f.to.Port(), f.protocol)
}

// over tells whether a TCP connection has ended at both ends.
func (f *flow) over() bool { return f.state > tcpLastAck }

// standing tells whether a TCP connection has begun at both ends, and not ended.
func (f *flow) standing() bool { return f.state >= tcpEstablished && !f.over() }

// translated tells whether the packets go elsewhere than the client sent them.
func (f *flow) translated() bool { return f.by != f.to }

// decode reads an entry, and tells whether all that matters is there.
func (f *flow) decode(family uint8, attrs []byte) bool {
	*f = flow{family: family}
	var orig, reply tuple
	for typ, v := range nfnetlink.Attrs(attrs) {
		switch typ {
		case cta.TupleOrig:
			f.tuple = v
			orig.decode(v)
		case cta.TupleReply:
			reply.decode(v)
		case cta.Zone:
			f.zone, f.zoned = v, true
		case cta.ID:
			f.id = v
		case cta.ProtoInfo:
			f.state = tcpState(v)
		}
	}
	f.protocol = orig.protocol
	f.from = netip.AddrPortFrom(orig.src, orig.srcPort)
	f.to = netip.AddrPortFrom(orig.dst, orig.dstPort)
	f.by = netip.AddrPortFrom(reply.src, reply.srcPort)
	f.replyTo = netip.AddrPortFrom(reply.dst, reply.dstPort)
	f.zoned = f.zoned || orig.zoned || reply.zoned
	return f.from.IsValid() && f.to.IsValid() && f.by.IsValid() && f.replyTo.IsValid() && len(f.id) > 0
}

// tcpState is the state in the attributes of an entry's protocol, 0 if they are
// not about TCP.
func tcpState(attrs []byte) uint8 {
	for typ, v := range nfnetlink.Attrs(attrs) {
		if typ != cta.ProtoInfoTCP {
			continue
		}
		for typ, v := range nfnetlink.Attrs(v) {
			if typ == cta.ProtoInfoTCPState && len(v) == 1 {
				return v[0]
			}
		}
	}
	return 0
}

// tuple is one direction of an entry.
type tuple struct {
	protocol         model.Protocol
	src, dst         netip.Addr
	srcPort, dstPort uint16
	zoned            bool
}

func (t *tuple) decode(attrs []byte) {
	for typ, v := range nfnetlink.Attrs(attrs) {
		switch typ {
		case cta.TupleIP:
			t.decodeIP(v)
		case cta.TupleProto:
			t.decodeProto(v)
		case cta.TupleZone:
			t.zoned = true
		}
	}
}

// decodeIP leaves an address of the wrong length invalid.
func (t *tuple) decodeIP(attrs []byte) {
	for typ, v := range nfnetlink.Attrs(attrs) {
		addr, _ := netip.AddrFromSlice(v)
		switch {
		case typ == cta.IPv4Src && addr.Is4(), typ == cta.IPv6Src && addr.Is6():
			t.src = addr
		case typ == cta.IPv4Dst && addr.Is4(), typ == cta.IPv6Dst && addr.Is6():
			t.dst = addr
		}
	}
}

func (t *tuple) decodeProto(attrs []byte) {
	for typ, v := range nfnetlink.Attrs(attrs) {
		switch {
		case typ == cta.ProtoNum && len(v) == 1:
			t.protocol = model.Protocol(v[0])
		case typ == cta.ProtoSrcPort && len(v) == 2:
			t.srcPort = binary.BigEndian.Uint16(v)
		case typ == cta.ProtoDstPort && len(v) == 2:
			t.dstPort = binary.BigEndian.Uint16(v)
		}
	}
}
