package config

import (
	"fmt"
	"net"
	"net/netip"

	netutils "k8s.io/utils/net"
)

// Addresses are read as upstream reads them, who takes a zero before a decimal
// number as nothing special.

func parseAddr(text string) (netip.Addr, bool) {
	ip := netutils.ParseIPSloppy(text)
	addr, ok := netip.AddrFromSlice(ip)
	return addr.Unmap(), ok
}

func parseCIDR(text string) (netip.Prefix, error) {
	_, network, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a range in CIDR notation", text)
	}
	addr, _ := netip.AddrFromSlice(network.IP)
	bits, _ := network.Mask.Size()
	prefix := netip.PrefixFrom(addr, bits)
	if addr.Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is an IPv4 range written as an IPv6 range", text)
	}
	return prefix, nil
}

// parseAddrPort reads an address and a port that one can listen on.
func parseAddrPort(text string) (netip.AddrPort, error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no address with a port", text)
	}
	addr, ok := parseAddr(host)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q is no IP address", host)
	}
	port, err := netutils.ParsePort(portText, false)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no port", portText)
	}
	return netip.AddrPortFrom(addr, uint16(port)), nil
}
