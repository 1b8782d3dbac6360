//go:build linux

package iptables

import (
	"maps"
	"slices"
)

// hook is a rule in a built-in chain that leads to one of ours.
type hook struct {
	table, from string
	rule        rule
}

const newOnly = " -m conntrack --ctstate NEW"

// hooks are in the order in which packets meet them.
//
// Those of nat are exactly upstream's: when it takes over from us, packets must not
// pass all its rules twice. Those of filter have no comments: iptables-nft evaluates a
// comment like a match, for every packet.
var hooks = []hook{
	{nat, "PREROUTING", rule{comment: "kubernetes service portals", target: jump(servicesChain)}},
	{nat, "OUTPUT", rule{comment: "kubernetes service portals", target: jump(servicesChain)}},
	{nat, "POSTROUTING", rule{comment: "kubernetes postrouting rules", target: jump(postroutingChain)}},

	{filter, "INPUT", rule{match: newOnly, target: jump(untranslatedChain)}},
	{filter, "INPUT", rule{target: jump(nodePortsChain)}},
	// Packets of established connections, which are most of those that a node
	// forwards, leave by the first rules.
	{filter, "FORWARD", rule{target: jump(forwardChain)}},
	{filter, "FORWARD", rule{match: newOnly, target: jump(untranslatedChain)}},
	{filter, "OUTPUT", rule{match: newOnly, target: jump(untranslatedChain)}},
}

// text is the rule without its -A.
func (h *hook) text() string { return h.from + string(h.rule.appendTo(nil)) }

func hooksOf(table string) []hook {
	return slices.DeleteFunc(slices.Clone(hooks), func(h hook) bool { return h.table != table })
}

// upstreamHooks are the texts of upstream's hooks in a table that differ from ours.
// They lead into chains that become ours.
var upstreamHooks = map[string][]string{
	filter: {
		upstreamHook("INPUT", newOnly, "kubernetes load balancer firewall", firewallChain),
		upstreamHook("INPUT", "", "kubernetes health check service ports", nodePortsChain),
		upstreamHook("INPUT", newOnly, "kubernetes externally-visible service portals", externalServicesChain),
		upstreamHook("FORWARD", newOnly, "kubernetes load balancer firewall", firewallChain),
		upstreamHook("FORWARD", "", "kubernetes forwarding rules", forwardChain),
		upstreamHook("FORWARD", newOnly, "kubernetes service portals", servicesChain),
		upstreamHook("FORWARD", newOnly, "kubernetes externally-visible service portals", externalServicesChain),
		upstreamHook("OUTPUT", newOnly, "kubernetes load balancer firewall", firewallChain),
		upstreamHook("OUTPUT", newOnly, "kubernetes service portals", servicesChain),
	},
}

func upstreamHook(from, match, comment, to string) string {
	return from + match + ` -m comment --comment "` + comment + `" ` + jump(to)
}

// hooksToMend compares the hooks of a table with the rules of its built-in chains.
// If those of one chain are not all there, once and in order, they are all deleted
// and inserted again. Upstream's are deleted.
func hooksToMend(table string, rules []string) (missing []hook, removing []string) {
	for _, r := range rules {
		if slices.Contains(upstreamHooks[table], r) {
			removing = append(removing, r)
		}
	}
	byChain := map[string][]hook{}
	for _, h := range hooksOf(table) {
		byChain[h.from] = append(byChain[h.from], h)
	}
	for _, from := range slices.Sorted(maps.Keys(byChain)) {
		var want []string
		for _, h := range byChain[from] {
			want = append(want, h.text())
		}
		var have []string
		for _, r := range rules {
			if slices.Contains(want, r) {
				have = append(have, r)
			}
		}
		if !slices.Equal(want, have) {
			removing = append(removing, have...)
			missing = append(missing, byChain[from]...)
		}
	}
	return missing, removing
}
