package kernelspace

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// interfaceOf returns the hardware address, as HNS writes it, of the interface that has an address.
func interfaceOf(ip netip.Addr) (mac string, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue // it may just have gone
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().WithZone("") == ip {
				return strings.ReplaceAll(strings.ToUpper(i.HardwareAddr.String()), ":", "-"), nil
			}
		}
	}
	return "", fmt.Errorf("no interface has the address %v of the node", ip)
}
