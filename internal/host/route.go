package host

import (
	"net/netip"

	"github.com/vishvananda/netlink"
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
