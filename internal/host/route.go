package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// InterfaceTo names the interface through which packets go to an address, and
// thus come from it where routes are the same both ways. It is empty for
// addresses of this machine and for those that no route leads to.
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

// notLocal are the errors by which the kernel says that it has no way to an
// address: none at all, or one that is marked as such.
var notLocal = []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL}

// IsLocal tells whether the routing table calls an address local: packets to it
// are for this machine, also if it is on no interface (ip route add local ...).
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
