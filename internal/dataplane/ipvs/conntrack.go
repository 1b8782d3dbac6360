package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice/internal/kernel/cta"
	"sluice/internal/kernel/nfnetlink"
)

const deleteEntry = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE

// forget deletes the connection tracking entry of a connection, so that rules decide on
// its next packet as on the first of a new connection. IPVS would do so itself, but not
// before the connection times out.
func forget(c connection) error {
	req := nl.NewNetlinkRequest(deleteEntry, unix.NLM_F_ACK)
	family := uint8(unix.AF_INET)
	if c.client.Addr().Is6() {
		family = unix.AF_INET6
	}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: unix.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(cta.TupleOrig|unix.NLA_F_NESTED, tupleOf(c)))
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("deleting the connection tracking entry of %s: %w", c.client, err)
	}
	return nil
}

// tupleOf returns the tuple of the direction to the service.
func tupleOf(c connection) []byte {
	src, dst := uint16(cta.IPv4Src), uint16(cta.IPv4Dst)
	if c.client.Addr().Is6() {
		src, dst = cta.IPv6Src, cta.IPv6Dst
	}
	addresses := nfnetlink.AppendAttr(nil, src, c.client.Addr().AsSlice())
	addresses = nfnetlink.AppendAttr(addresses, dst, c.service.Addr.AsSlice())
	ports := nfnetlink.AppendAttr(nil, cta.ProtoNum, []byte{c.service.Protocol})
	ports = nfnetlink.AppendAttr(ports, cta.ProtoSrcPort, binary.BigEndian.AppendUint16(nil, c.client.Port()))
	ports = nfnetlink.AppendAttr(ports, cta.ProtoDstPort, binary.BigEndian.AppendUint16(nil, c.service.Port))
	tuple := nfnetlink.AppendAttr(nil, nfnetlink.Nested|cta.TupleIP, addresses)
	return nfnetlink.AppendAttr(tuple, nfnetlink.Nested|cta.TupleProto, ports)
}
