package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// InterfaceTo returns the name of the interface through which packets to an
// address leave, and, with symmetric routing, packets from it arrive. It is
// empty for addresses of this machine and for unreachable ones.
func InterfaceTo(addr netip.Addr) string {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 {
		return ""
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil || link.Attrs().Name == "lo" {
		return ""
	}
	return link.Attrs().Name
}

// notLocal are the errors by which the kernel says that it has no route to an
// address, or one that rejects packets.
var notLocal = []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL}

// IsLocal reports whether the routing table considers an address local: packets
// to it are delivered to this machine, even if it is on no interface (ip route
// add local ...).
func IsLocal(addr netip.Addr) (bool, error) {
	routes, err := netlink.RouteGet(addr.AsSlice())
	switch {
	case slices.ContainsFunc(notLocal, func(no error) bool { return errors.Is(err, no) }):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask for the route to %s: %w", addr, err)
	}
	return len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
}
