package source

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	netutils "k8s.io/utils/net"

	"sluice/internal/base/printable"
	"sluice/internal/model"
)

// parseAddr parses an IP address as Kubernetes writes it, without a zone. Objects
// of old clusters have leading zeros in IPv4 addresses, which are read as decimal,
// as all of Kubernetes does. An IPv4-mapped IPv6 address comes back as the IPv4
// address.
func parseAddr(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		if sloppy, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(s)); ok {
			return sloppy.Unmap(), nil
		}
		return netip.Addr{}, fmt.Errorf("%q is not an IP address: %s", printable.Cut(s), printable.Cut(parseReason(err)))
	}
	if addr.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q has a zone, and an address of a Service cannot have one", printable.Cut(s))
	}
	return addr.Unmap(), nil
}

// parsePrefix parses a CIDR, with leading zeros as parseAddr does. Bits behind
// the prefix are cleared, as the kernel does; an IPv4-mapped IPv6 range comes back
// as the IPv4 range.
func parsePrefix(s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		if sloppy, ok := parsePrefixSloppy(s); ok {
			return sloppy, nil
		}
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR: %s", printable.Cut(s), printable.Cut(parseReason(err)))
	}
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), nil
}

func parsePrefixSloppy(s string) (netip.Prefix, bool) {
	_, cidr, err := netutils.ParseCIDRSloppy(s)
	if err != nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(cidr.IP)
	ones, _ := cidr.Mask.Size()
	return netip.PrefixFrom(addr, ones), ok
}

// parseReason returns the last part of a netip error, which otherwise repeats
// the name of the function and the input.
func parseReason(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, "): "); i >= 0 {
		return s[i+3:]
	}
	return s
}

// checkForwardable returns why connections to the address cannot be forwarded to
// it or from it, if they cannot: it is not an address of one machine.
func checkForwardable(addr netip.Addr) error {
	switch {
	case addr.IsUnspecified():
		return errors.New("it is the unspecified address")
	case addr.IsLoopback():
		return errors.New("it is a loopback address")
	case addr.IsMulticast():
		return errors.New("it is a multicast address")
	case addr == broadcast:
		return errors.New("it is the broadcast address")
	}
	return nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// checkEndpoint is checkForwardable for addresses that must mean the same on
// every node, which link-local ones do not.
func checkEndpoint(addr netip.Addr) error {
	if addr.IsLinkLocalUnicast() {
		return errors.New("it is a link-local address")
	}
	return checkForwardable(addr)
}

// checkFamily reports whether an address is not of the family wanted.
func checkFamily(addr netip.Addr, want model.Family) error {
	if got := model.FamilyOf(addr); got != want {
		return fmt.Errorf("%s is an %s address", addr, got)
	}
	return nil
}

// addrs parses a list of addresses, without those that check refuses.
func (r *Report) addrs(field string, list []string, check func(netip.Addr) error) []netip.Addr {
	out := make([]netip.Addr, 0, len(list))
	for i, s := range list {
		if addr, ok := r.addr(index(field, i), s, check); ok {
			out = append(out, addr)
		}
	}
	return distinct(out)
}

// addr parses an address and reports it if it is malformed or refused.
func (r *Report) addr(field, s string, check func(netip.Addr) error) (netip.Addr, bool) {
	addr, err := parseAddr(s)
	if err != nil {
		r.Malformed(field, "write a plain IPv4 or IPv6 address", "%v", err)
		return netip.Addr{}, false
	}
	if err := check(addr); err != nil {
		r.unusable(field, "use an address of one machine that others can reach", "%s cannot be used: %v", addr, err)
		return netip.Addr{}, false
	}
	return addr, true
}

// prefixes parses a list of CIDRs and leaves out the malformed ones, as is reported.
func prefixes(field string, list []string, report func(field, remedy, reason string, args ...any)) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(list))
	for i, s := range list {
		prefix, err := parsePrefix(strings.TrimSpace(s))
		if err != nil {
			report(index(field, i), "write a CIDR such as 192.0.2.0/24", "%v", err)
			continue
		}
		out = append(out, prefix)
	}
	return distinct(out)
}

func index(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
