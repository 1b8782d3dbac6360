package conntrack

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"sluice/internal/kernel/cta"
	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// flow is an entry of the table, as far as it matters here.
type flow struct {
	protocol model.Protocol
	from     netip.AddrPort // the client
	to       netip.AddrPort // where the client sends to
	by       netip.AddrPort // the source of replies: the endpoint
	replyTo  netip.AddrPort // where replies go: the client, or the address that masquerades it
	zoned    bool           // in a conntrack zone other than the default
	state    uint8          // of a TCP connection
	replied  bool           // packets were seen in both directions

	// Attributes by which the kernel identifies the entry. They refer to the
	// receive buffer.
	family          uint8
	tuple, zone, id []byte
}

// key returns the key of a frontend on the address that the client sends to.
func (f *flow) key() plan.Key {
	return plan.Key{Addr: f.to.Addr(), Port: f.to.Port(), Protocol: f.protocol}
}

// nodePortKey returns the key of the node port that the client may be sending
// to.
func (f *flow) nodePortKey() plan.Key {
	return plan.NodePortKey(model.FamilyOf(f.to.Addr()), f.to.Port(), f.protocol)
}

// over reports whether a TCP connection has ended in both directions.
func (f *flow) over() bool { return f.state > cta.TCPLastAck }

// established reports whether a TCP connection is established and has not
// ended.
func (f *flow) established() bool { return f.state >= cta.TCPEstablished && !f.over() }

// translated reports whether the destination of the flow was translated.
func (f *flow) translated() bool { return f.by != f.to }

// clone returns a copy that does not refer to the receive buffer.
func (f *flow) clone() flow {
	c := *f
	c.tuple, c.zone, c.id = slices.Clone(f.tuple), slices.Clone(f.zone), slices.Clone(f.id)
	return c
}

// decode parses an entry, and reports whether it is complete.
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
		case cta.Status:
			f.replied = len(v) == 4 && binary.BigEndian.Uint32(v)&cta.SeenReply != 0
		case cta.ProtoInfo:
			f.state = cta.TCPState(v)
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
