package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"

	netutils "k8s.io/utils/net"
)

// Addresses are parsed as upstream: leading zeros of a decimal number are ignored.

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
	if addr.Is4In6() { // an IPv4 range that is written as an IPv6 range
		bits -= 8 * (net.IPv6len - net.IPv4len)
	}
	return netip.PrefixFrom(addr.Unmap(), bits), nil
}

// parseAddrPort parses an address and a port to listen on.
func parseAddrPort(text string) (netip.AddrPort, error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address with a port", text)
	}
	addr, ok := parseAddr(host)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q is not an IP address", host)
	}
	port, err := strconv.Atoi(portText)
	if err != nil || port < 1 || port > math.MaxUint16 {
		return netip.AddrPort{}, fmt.Errorf("%q is not a port", portText)
	}
	return netip.AddrPortFrom(addr, uint16(port)), nil
}
