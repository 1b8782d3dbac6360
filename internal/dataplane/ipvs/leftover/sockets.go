package leftover

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/kernel/ipvs"
)

// connection is a connection to a Service.
type connection struct {
	client  netip.AddrPort
	service ipvs.Key
}

// readSockets returns the TCP connections of sockets of the node that are bound to some
// addresses, whether IPVS knows them or not.
func readSockets(at map[netip.Addr]bool) (list []connection, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := netlink.SocketDiagTCP(family)
		if errors.Is(err, unix.ENOENT) {
			continue // the kernel does not list sockets, or has no IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("listing the sockets of the node: %w", err)
		}
		for _, s := range sockets {
			source := addrOf(s.ID.Source)
			if !at[source] || s.State == netlink.TCP_LISTEN || s.State == netlink.TCP_TIME_WAIT || s.State == netlink.TCP_CLOSE {
				continue
			}
			list = append(list, connection{
				client:  netip.AddrPortFrom(source, s.ID.SourcePort),
				service: ipvs.Key{Addr: addrOf(s.ID.Destination), Port: s.ID.DestinationPort, Protocol: unix.IPPROTO_TCP},
			})
		}
	}
	return list, nil
}
