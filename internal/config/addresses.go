package config

import (
	"fmt"
	"net/netip"
	"strings"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// The words that nodePortAddresses knows.
const (
	addressesPrimary   = "primary"
	addressesAll       = "all"
	addressesLocalhost = "localhost"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func nodePortAddresses(items []string, n *notes) plan.NodePortAddresses {
	if len(items) == 0 {
		return plan.NodePortAddresses{Primary: true}
	}
	var out plan.NodePortAddresses
	for i, item := range items {
		field := fmt.Sprintf("nodePortAddresses[%d]", i)
		switch item = strings.TrimSpace(item); item {
		case addressesPrimary:
			out.Primary = true
		case addressesAll:
			out.All = true
		case addressesLocalhost:
			out.Prefixes = append(out.Prefixes, loopback...)
			warnLoopback(field, n)
		default:
			prefix, err := parseCIDR(item)
			if err != nil {
				n.fail(field, err.Error(), "use a range such as 192.168.0.0/16 or fd00::/8, or one of the words primary, all and localhost")
				continue
			}
			if prefix.Addr().IsLoopback() {
				warnLoopback(field, n)
			}
			out.Prefixes = append(out.Prefixes, prefix)
		}
	}
	return out
}

func warnLoopback(field string, n *notes) {
	n.warn(field, "node ports are not served on loopback addresses",
		"connect to another address of the node")
}

// clusterCIDRs reads a range, or one of each family with a comma between them.
func clusterCIDRs(text string, n *notes) []netip.Prefix {
	const field = "clusterCIDR"
	if strings.TrimSpace(text) == "" {
		return nil
	}
	var out []netip.Prefix
	seen := map[model.Family]bool{}
	for item := range strings.SplitSeq(text, ",") {
		prefix, err := parseCIDR(strings.TrimSpace(item))
		if err != nil {
			n.fail(field, err.Error(), "set --cluster-cidr to a range such as 10.244.0.0/16, or to one of each family with a comma between them")
			continue
		}
		family := model.FamilyOf(prefix.Addr())
		if seen[family] {
			n.fail(field, fmt.Sprintf("%v is a second range of %v", prefix, family),
				"set --cluster-cidr to at most one range of each family")
			continue
		}
		seen[family] = true
		out = append(out, prefix)
	}
	return out
}

func parseCIDR(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is not a range in CIDR notation", text)
	}
	return prefix.Masked(), nil
}
