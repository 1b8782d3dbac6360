package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	netutils "k8s.io/utils/net"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// The words that nodePortAddresses knows.
const (
	addressesPrimary   = "primary"
	addressesAll       = "all"
	addressesLocalhost = "localhost"
)

func nodePortAddresses(items []string, n *notes) plan.NodePortAddresses {
	if len(items) == 0 {
		return plan.NodePortAddresses{All: true}
	}
	var out plan.NodePortAddresses
	words := map[string]bool{}
	for i, item := range items {
		field := fmt.Sprintf("nodePortAddresses[%d]", i)
		if words[item] {
			n.fail(field, fmt.Sprintf("%q is there twice", item), "name it once in --nodeport-addresses")
			continue
		}
		switch item {
		case addressesPrimary:
			out.Primary = true
		case addressesAll:
			out.All = true
		case addressesLocalhost:
			out.Prefixes = append(out.Prefixes, loopback...)
		default:
			out.Prefixes = append(out.Prefixes, nodePortRange(field, item, n)...)
			continue
		}
		words[item] = true
	}
	return out
}

func nodePortRange(field, item string, n *notes) []netip.Prefix {
	prefix, err := parseCIDR(item)
	if err != nil {
		n.fail(field, err.Error(), orRangeOf(item, "use a range such as 192.168.0.0/16 or fd00::/8, or one of the words primary, all and localhost"))
		return nil
	}
	noteRange(field, item, prefix, n)
	if prefix.Addr().IsLoopback() && !slices.ContainsFunc(loopbackAddresses, prefix.Contains) {
		n.warn(field, fmt.Sprintf("%v selects nothing: of the loopback addresses, node ports are served on 127.0.0.1 and ::1 only", prefix),
			"use the word localhost, or 127.0.0.1/32")
	}
	return []netip.Prefix{prefix}
}

// clusterCIDRs reads a range, or one of each family with a comma between them.
func clusterCIDRs(text string, matters bool, n *notes) []netip.Prefix {
	const field = "clusterCIDR"
	if text == "" {
		return nil
	}
	var out []netip.Prefix
	seen := map[model.Family]bool{}
	for item := range strings.SplitSeq(text, ",") {
		prefix, err := parseCIDR(item)
		if err != nil {
			n.failIf(matters, field, err.Error(), orRangeOf(item, "set --cluster-cidr to a range such as 10.244.0.0/16, or to one of each family with a comma between them"))
			continue
		}
		noteRange(field, item, prefix, n)
		family := model.FamilyOf(prefix.Addr())
		if seen[family] {
			n.failIf(matters, field, fmt.Sprintf("%v is a second range of %v", prefix, family),
				"set --cluster-cidr to at most one range of each family")
			continue
		}
		seen[family] = true
		out = append(out, prefix)
	}
	return out
}

// externalIPRanges reads the ranges that external IPs of Services may be in.
func (f *Flags) externalIPRanges(n *notes) (out []netip.Prefix) {
	const field = "--" + flagExternalIPRanges
	for _, text := range f.ExternalIPRanges {
		prefix, err := parseCIDR(text)
		if err != nil {
			n.fail("", field+": "+err.Error(), orRangeOf(text, "use ranges such as 198.51.100.0/24 or 2001:db8::/32, with commas between them"))
			continue
		}
		noteRange(field, text, prefix, n)
		out = append(out, prefix)
	}
	return out
}

// orRangeOf returns the remedy for what is not a range: the range of an address alone, or
// another one.
func orRangeOf(text, otherwise string) string {
	addr, ok := parseAddr(text)
	if !ok {
		return otherwise
	}
	return fmt.Sprintf("write %s/%d for this address alone", addr, addr.BitLen())
}

// noteRange notes which range is meant by one that is written with an address inside it.
func noteRange(field, text string, prefix netip.Prefix, n *notes) {
	host, _, _ := strings.Cut(text, "/")
	if addr, ok := parseAddr(host); ok && addr != prefix.Addr() {
		n.note(field, fmt.Sprintf("%s is taken for the whole range %v", text, prefix), fmt.Sprintf("write %v", prefix))
	}
}

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
