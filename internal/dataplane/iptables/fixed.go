package iptables

import "fmt"

// writeFixed writes the chains that depend on the settings only.
func (w *ruleset) writeFixed() {
	for _, name := range []string{nat, filter} {
		w.out[name].begin(canaryChain)
	}
	mark := fmt.Sprintf("%#x", w.settings.MasqueradeMark)
	w.out[nat].begin(markChain).add(rule{target: "-j MARK --set-xmark " + mark + "/" + mark})
	w.writeMarkOffCluster(w.out[nat].begin(markOffClusterChain))
	w.writePostrouting(w.out[nat].begin(postroutingChain), mark)
	w.writeForward(w.out[filter].begin(forwardChain), mark)
	w.writeUntranslated(w.out[filter].begin(untranslatedChain))
}

// writeMarkOffCluster marks what does not come from pods, where that takes more
// than one condition.
func (w *ruleset) writeMarkOffCluster(off *chainText) {
	for _, who := range w.env.pods() {
		off.add(who.on(rule{target: jump("RETURN")}))
	}
	off.add(rule{target: jump(markChain)})
}

const translated = " -m conntrack --ctstate DNAT"

// writePostrouting masquerades what is marked, and what goes to the client
// itself, and removes the mark.
func (w *ruleset) writePostrouting(post *chainText, mark string) {
	if w.features.BPF {
		post.add(rule{match: translated + ` -m bpf --bytecode "` + w.env.words.hairpin + `"`, target: jump(markChain)})
	} else {
		post.add(rule{match: translated, target: jump(hairpinChain)})
	}
	post.add(rule{match: " -m mark ! --mark " + mark + "/" + mark, target: jump("RETURN")})
	post.add(rule{target: "-j MARK --set-xmark " + mark + "/0x0"})
	masquerade := "-j MASQUERADE"
	if w.features.RandomFully {
		masquerade += " --random-fully"
	}
	post.add(rule{comment: "kubernetes service traffic requiring SNAT", target: masquerade})
}

// writeForward lets through what was translated, and drops what connection
// tracking can make nothing of: such a packet would leave with an address that
// nobody outside knows.
func (w *ruleset) writeForward(fwd *chainText, mark string) {
	fwd.add(rule{match: " -m conntrack --ctstate RELATED,ESTABLISHED", target: "-j ACCEPT"})
	if w.settings.DropInvalid {
		invalid := " -m conntrack --ctstate INVALID"
		if w.features.NFAcct {
			invalid += " -m nfacct --nfacct-name  " + invalidCounter // it is listed with two blanks
		}
		fwd.add(rule{match: invalid, target: "-j DROP"})
	}
	// A mark alone may be somebody else's, on a packet that the firewall chain is
	// for.
	fwd.add(rule{match: " -m mark --mark " + mark + "/" + mark + translated, target: "-j ACCEPT"})
}

// writeUntranslated leads new connections to where they may be refused, but for
// those that were translated: they go to an endpoint by now, and an endpoint on
// this node may be at the very address and port that others are refused at.
func (w *ruleset) writeUntranslated(un *chainText) {
	un.add(rule{match: translated, target: jump("RETURN")})
	for _, to := range []string{firewallChain, servicesChain, externalServicesChain} {
		un.add(rule{target: jump(to)})
	}
}
