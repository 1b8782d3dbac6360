package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// changed is what the kernel says of an address that was added or removed.
type changed = netlink.AddrUpdate

// subscribe has changes sent until done is closed.
func subscribe(changes chan<- changed, done <-chan struct{}) error {
	return netlink.AddrSubscribe(changes, done)
}

// dumpAttempts is how often a dump is retried immediately if the kernel interrupted it because
// an address changed meanwhile.
const dumpAttempts = 5

// serviceLink is where upstream's ipvs mode has the addresses of Services. They are not
// the machine's.
const serviceLink = "kube-ipvs0"

// addresses returns the addresses of all interfaces but serviceLink, sorted and without
// duplicates.
func addresses() ([]netip.Addr, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for attempt := 1; errors.Is(err, netlink.ErrDumpInterrupted) && attempt < dumpAttempts; attempt++ {
		list, err = netlink.AddrList(nil, netlink.FAMILY_ALL)
	}
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	of := -1
	if link, err := netlink.LinkByName(serviceLink); err == nil {
		of = link.Attrs().Index
	}
	ips := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok || a.LinkIndex == of {
			continue
		}
		ip = ip.Unmap()
		if ip.Is6() && ip.IsLinkLocalUnicast() {
			continue
		}
		ips = append(ips, ip)
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips), nil
}
