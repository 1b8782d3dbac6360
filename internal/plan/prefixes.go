package plan

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// mergePrefixes returns the prefixes masked, sorted, and without those that
// another one contains. It returns nil for none and does not modify its
// argument.
func mergePrefixes(in []netip.Prefix) []netip.Prefix {
	masked := make([]netip.Prefix, 0, len(in))
	for _, p := range in {
		if p.IsValid() {
			masked = append(masked, p.Masked())
		}
	}
	// A prefix sorts directly before all that it contains.
	slices.SortFunc(masked, netip.Prefix.Compare)
	var out []netip.Prefix
	for _, p := range masked {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

func prefixesOf(f model.Family, in []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range in {
		if p.IsValid() && model.FamilyOf(p.Addr()) == f {
			out = append(out, p)
		}
	}
	return out
}

func anyContains(prefixes []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}

func hostPrefix(ip netip.Addr) netip.Prefix { return netip.PrefixFrom(ip, ip.BitLen()) }

// allowedSources returns the sources that may connect to a load balancer IP. If
// the ranges admit the node, they admit the load balancer IP too: a node that
// owns this IP picks it as the source of its own connections to it.
func (env *environment) allowedSources(ranges []netip.Prefix, ip netip.Addr) []netip.Prefix {
	ranges = prefixesOf(model.FamilyOf(ip), ranges)
	admitsNode := slices.ContainsFunc(env.nodeIPs, func(n netip.Addr) bool { return anyContains(ranges, n) })
	if admitsNode {
		ranges = append(ranges, hostPrefix(ip))
	}
	return mergePrefixes(ranges)
}
