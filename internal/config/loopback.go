package config

import (
	"fmt"
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
	// loopback is what the word localhost means.
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	// loopbackAddresses are those on which node ports can be served.
	loopbackAddresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
)

// loopbackNodePorts returns the loopback addresses on which node ports are served:
// those selected explicitly. In some modes, as upstream, 127.0.0.1 is also served
// if all addresses are selected.
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

// rejectLocalhost applies the flag that rejects packets to node ports on loopback addresses.
func (f *Flags) rejectLocalhost(s *Settings, n *notes) {
	switch {
	case !f.RejectLocalhostNodePorts:
	case !s.Mode.Configuration.CountsLoopback:
		n.fail("", fmt.Sprintf("--%s: not in %s mode", flagRejectLocalhost, s.Mode.Name), "leave it out, or set --proxy-mode to nftables")
	default:
		s.Plan.UnservedLoopback = plan.UnservedReject
	}
}

// loopbackForbidden returns the field with which the administrator disabled node
// ports on loopback addresses, "" if not. The gate is off by default, as upstream,
// where the feature is new; here it counts only if it is set explicitly.
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
