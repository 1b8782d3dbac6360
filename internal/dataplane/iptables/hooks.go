package iptables

import "slices"

// hook is a rule in a built-in chain that leads to one of ours. Upstream's
// kube-proxy writes the same.
type hook struct {
	table, from string
	rule        rule
}

const newOnly = " -m conntrack --ctstate NEW"

// hooks are in the order in which packets meet them.
var hooks = []hook{
	hookTo(nat, "PREROUTING", "", "kubernetes service portals", servicesChain),
	hookTo(nat, "OUTPUT", "", "kubernetes service portals", servicesChain),
	hookTo(nat, "POSTROUTING", "", "kubernetes postrouting rules", postroutingChain),

	hookTo(filter, "INPUT", newOnly, "kubernetes load balancer firewall", firewallChain),
	hookTo(filter, "INPUT", "", "kubernetes health check service ports", nodePortsChain),
	hookTo(filter, "INPUT", newOnly, "kubernetes externally-visible service portals", externalServicesChain),
	// What belongs to a connection leaves by the first rules, as that is most of
	// what a node forwards.
	hookTo(filter, "FORWARD", "", "kubernetes forwarding rules", forwardChain),
	hookTo(filter, "FORWARD", newOnly, "kubernetes load balancer firewall", firewallChain),
	hookTo(filter, "FORWARD", newOnly, "kubernetes service portals", servicesChain),
	hookTo(filter, "FORWARD", newOnly, "kubernetes externally-visible service portals", externalServicesChain),
	hookTo(filter, "OUTPUT", newOnly, "kubernetes load balancer firewall", firewallChain),
	hookTo(filter, "OUTPUT", newOnly, "kubernetes service portals", servicesChain),
	hookTo(filter, "OUTPUT", newOnly, "kubernetes externally-visible service portals", externalServicesChain),
}

// hookTo has the match in front of the comment, where upstream has it.
func hookTo(table, from, match, comment, to string) hook {
	return hook{table, from, rule{match: match + ` -m comment --comment "` + comment + `"`, target: jump(to)}}
}

// text is the rule without the option that says what to do with it.
func (h *hook) text() string { return h.from + string(h.rule.appendTo(nil)) }

// hooksOf are those of a table.
func hooksOf(table string) []hook {
	return slices.DeleteFunc(slices.Clone(hooks), func(h hook) bool { return h.table != table })
}
