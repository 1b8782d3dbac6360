package iptables

import (
	"fmt"

	"sluice/internal/kernel/iptables"
)

// writeFixed writes the chains that depend on the settings only.
func (rs *ruleset) writeFixed() {
	for _, name := range []string{nat, filter} {
		rs.out[name].begin(canaryChain)
	}
	mark := fmt.Sprintf("%#x", rs.settings.MasqueradeMark)
	rs.out[nat].begin(markChain).add(rule{target: "-j MARK --set-xmark " + mark + "/" + mark})
	rs.writeMarkOffCluster(rs.out[nat].begin(markOffClusterChain))
	rs.writePostrouting(rs.out[nat].begin(postroutingChain), mark)
	rs.writeForward(rs.out[filter].begin(forwardChain), mark)
	rs.writeUntranslated(rs.out[filter].begin(untranslatedChain))
}

// writeMarkOffCluster marks packets that are not from pods, for detectors that need
// more than one condition.
func (rs *ruleset) writeMarkOffCluster(text *chainText) {
	for _, from := range rs.env.pods() {
		text.add(from.on(rule{target: jump("RETURN")}))
	}
	text.add(rule{target: jump(markChain)})
}

const translated = " -m conntrack --ctstate DNAT"

// writePostrouting masquerades marked packets and hairpin connections, and clears the
// mark. One rule with BPF finds all hairpin connections; a chain for each endpoint
// would double the size of the table.
func (rs *ruleset) writePostrouting(text *chainText, mark string) {
	if rs.features.BPF {
		text.add(rule{match: translated + ` -m bpf --bytecode "` + iptables.SameAddressBytecode(rs.family) + `"`, target: jump(markChain)})
	} else {
		text.add(rule{match: translated, target: jump(hairpinChain)})
	}
	text.add(rule{match: " -m mark ! --mark " + mark + "/" + mark, target: jump("RETURN")})
	text.add(rule{target: "-j MARK --set-xmark " + mark + "/0x0"})
	masquerade := "-j MASQUERADE"
	if rs.features.RandomFully {
		masquerade += " --random-fully"
	}
	text.add(rule{comment: "kubernetes service traffic requiring SNAT", target: masquerade})
}

// writeForward accepts what was translated, and drops what conntrack considers
// invalid: such a packet would leave with an untranslated address.
func (rs *ruleset) writeForward(text *chainText, mark string) {
	text.add(rule{match: " -m conntrack --ctstate RELATED,ESTABLISHED", target: "-j ACCEPT"})
	if rs.settings.DropInvalid {
		invalid := " -m conntrack --ctstate INVALID"
		if rs.features.NFAcct {
			invalid += " -m nfacct --nfacct-name  " + invalidCounter // it is listed with two blanks
		}
		text.add(rule{match: invalid, target: "-j DROP"})
	}
	// The mark alone may be another program's, on a packet for the firewall chain.
	text.add(rule{match: " -m mark --mark " + mark + "/" + mark + translated, target: "-j ACCEPT"})
}

// writeUntranslated leads new connections to the chains that refuse them, unless
// they were translated: they go to an endpoint by now, and an endpoint on this node
// may have an address and port at which others are refused.
func (rs *ruleset) writeUntranslated(text *chainText) {
	text.add(rule{match: translated, target: jump("RETURN")})
	for _, to := range []string{firewallChain, servicesChain, externalServicesChain} {
		text.add(rule{target: jump(to)})
	}
}
