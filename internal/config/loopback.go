package config

import (
	"net/netip"
	"slices"

	"k8s.io/component-base/featuregate"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// LocalhostNodePorts is the feature gate for node ports on loopback addresses in
// nftables mode.
const LocalhostNodePorts featuregate.Feature = "KubeProxyNFTablesLocalhostNodePorts"

var (
	// loopback is what the word localhost stands for.
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	// loopbackAddresses are those of them that node ports can be served on.
	loopbackAddresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
)

// loopbackNodePorts are the loopback addresses that node ports are served on:
// those that are named. In some modes, as upstream, that of IPv4 needs no name
// where all addresses are selected.
func loopbackNodePorts(c *Configuration, m dataplane.Mode, selected plan.NodePortAddresses, n *notes) []netip.Addr {
	var named, out []netip.Addr
	for _, ip := range loopbackAddresses {
		contains := func(p netip.Prefix) bool { return p.Contains(ip) }
		byName := func(p netip.Prefix) bool { return contains(p) && p.Addr().IsLoopback() }
		switch {
		case slices.ContainsFunc(selected.Prefixes, byName):
			named, out = append(named, ip), append(out, ip)
		case m.Configuration.LocalhostNodePorts && ip.Is4() && (selected.AllOf(model.IPv4) || slices.ContainsFunc(selected.Prefixes, contains)):
			out = append(out, ip)
		}
	}
	field, remedy := loopbackForbidden(c, m)
	if field == "" {
		return out
	}
	if len(named) > 0 {
		n.warn("nodePortAddresses", "node ports are not served on loopback addresses: "+field+" is false", remedy)
	}
	return nil
}

// loopbackForbidden is the field by which the administrator switched node ports
// on loopback addresses off; "" if not. The gate is off by
// default, with upstream, as the feature is new there; what counts here is
// whether somebody said so.
func loopbackForbidden(c *Configuration, m dataplane.Mode) (field, remedy string) {
	if m.Configuration.LocalhostNodePorts {
		if !*c.IPTables.LocalhostNodePorts {
			return "iptables.localhostNodePorts", "set --iptables-localhost-nodeports, or take loopback addresses out of --nodeport-addresses"
		}
		return "", ""
	}
	if on, set := c.FeatureGates[string(LocalhostNodePorts)]; set && !on {
		return "feature gate " + string(LocalhostNodePorts), "leave the gate out, or take loopback addresses out of --nodeport-addresses"
	}
	return "", ""
}
