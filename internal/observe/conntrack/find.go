package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/cta"
	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
)

// Find returns the connection of a client to an address in a network namespace, given as in
// Options, and whether there is one. It may be one whose destination was not translated.
func Find(netns int, p model.Protocol, client, to netip.AddrPort) (c Connection, found bool, err error) {
	socket, err := nfnetlink.Dial(netns)
	if err != nil {
		return c, false, err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	family := uint8(unix.NFPROTO_IPV4)
	if to.Addr().Is6() {
		family = unix.NFPROTO_IPV6
	}
	const seq = 1
	msg := nfnetlink.AppendHeader(nil, getEntry, unix.NLM_F_REQUEST|unix.NLM_F_ACK, family, 0)
	msg = nfnetlink.AppendAttr(msg, nfnetlink.Nested|cta.TupleOrig, tupleOf(p, client, to))
	nfnetlink.EndMessage(msg, 0)
	nfnetlink.SetSeq(msg, 0, seq)
	if err := socket.Send(msg); err != nil {
		return c, false, fmt.Errorf("asking for a connection tracking entry: %w", err)
	}
	if err := socket.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return c, false, err
	}
	var f flow
	for answered := false; !answered; {
		err := socket.Receive(func(h nfnetlink.Header, payload []byte) error {
			switch {
			case h.Seq != seq:
			case h.Type == unix.NLMSG_ERROR:
				answered = true
				return nfnetlink.AckError(h, payload)
			case len(payload) >= nfnetlink.GenHeaderLen && f.decode(payload[0], payload[nfnetlink.GenHeaderLen:]) && len(f.id) == 4:
				c, found = f.connection(), true
			}
			return nil
		})
		switch {
		case errors.Is(err, unix.ENOENT):
			return c, false, nil
		case err != nil:
			return c, false, fmt.Errorf("reading a connection tracking entry: %w", err)
		}
	}
	return c, found, nil
}

// tupleOf encodes the direction from a client to an address.
func tupleOf(p model.Protocol, client, to netip.AddrPort) []byte {
	src, dst := uint16(cta.IPv4Src), uint16(cta.IPv4Dst)
	if to.Addr().Is6() {
		src, dst = cta.IPv6Src, cta.IPv6Dst
	}
	ip := nfnetlink.AppendAttr(nil, src, client.Addr().AsSlice())
	ip = nfnetlink.AppendAttr(ip, dst, to.Addr().AsSlice())
	proto := nfnetlink.AppendAttr(nil, cta.ProtoNum, []byte{byte(p)})
	proto = nfnetlink.AppendAttr(proto, cta.ProtoSrcPort, binary.BigEndian.AppendUint16(nil, client.Port()))
	proto = nfnetlink.AppendAttr(proto, cta.ProtoDstPort, binary.BigEndian.AppendUint16(nil, to.Port()))
	tuple := nfnetlink.AppendAttr(nil, nfnetlink.Nested|cta.TupleIP, ip)
	return nfnetlink.AppendAttr(tuple, nfnetlink.Nested|cta.TupleProto, proto)
}
