//go:build !linux

package host

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// lookEvery is how often the addresses are read: not every system reports changes.
const lookEvery = 5 * time.Second

// changed is that an address may have changed.
type changed = time.Time

// subscribe has changes sent from time to time until done is closed.
func subscribe(changes chan<- changed, done <-chan struct{}) error {
	go func() {
		defer close(changes)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case now := <-tick.C:
				changes <- now
			}
		}
	}()
	return nil
}

// addresses returns the addresses of all interfaces, sorted and without duplicates.
func addresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	var ips []netip.Addr
	for _, a := range list {
		network, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(network.IP)
		if ip = ip.Unmap(); ok && !(ip.Is6() && ip.IsLinkLocalUnicast()) {
			ips = append(ips, ip)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips), nil
}

// InterfaceTo returns "": the routing table is not known.
func InterfaceTo(netip.Addr) string { return "" }

// IsLocal reports whether an address is on an interface of this machine.
func IsLocal(addr netip.Addr) (bool, error) {
	ips, err := addresses()
	return slices.Contains(ips, addr), err
}
