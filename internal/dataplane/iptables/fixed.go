package iptables

import "fmt"

// writeFixed writes the chains that depend on the settings only.
func (w *world) writeFixed() {
	for _, pages := range w.out {
		pages.begin(canaryChain)
	}
	mark := fmt.Sprintf("%#x", w.settings.MasqueradeMark)
	w.out[nat].begin(markChain).add(rule{target: "-j MARK --set-xmark " + mark + "/" + mark})
	w.writeMarkOffCluster(w.out[nat].begin(markOffClusterChain))
	w.writePostrouting(w.out[nat].begin(postroutingChain), mark)
	w.writeForward(w.out[filter].begin(forwardChain), mark)
}

// writeMarkOffCluster marks what does not come from pods, where that takes more
// than one condition.
func (w *world) writeMarkOffCluster(off *page) {
	for _, who := range w.env.pods() {
		off.add(who.on(rule{target: jump("RETURN")}))
	}
	off.add(rule{target: jump(markChain)})
}

// writePostrouting masquerades what is marked, and what goes to the client
// itself, and removes the mark.
func (w *world) writePostrouting(post *page, mark string) {
	const translated = " -m conntrack --ctstate DNAT"
	if w.features.bytecode {
		post.add(rule{match: translated + ` -m bpf --bytecode "` + w.env.words.bytecode + `"`, target: jump(markChain)})
	} else {
		post.add(rule{match: translated, target: jump(hairpinChain)})
	}
	post.add(rule{match: " -m mark ! --mark " + mark + "/" + mark, target: jump("RETURN")})
	post.add(rule{target: "-j MARK --set-xmark " + mark + "/0x0"})
	masquerade := "-j MASQUERADE"
	if w.features.randomFully {
		masquerade += " --random-fully"
	}
	post.add(rule{comment: "kubernetes service traffic requiring SNAT", target: masquerade})
}

// writeForward lets through what was translated, and drops what connection
// tracking can make nothing of: such a packet would leave with an address that
// nobody outside knows.
func (w *world) writeForward(fwd *page, mark string) {
	fwd.add(rule{match: " -m conntrack --ctstate RELATED,ESTABLISHED", target: "-j ACCEPT"})
	if w.settings.DropInvalid {
		invalid := " -m conntrack --ctstate INVALID"
		if w.features.accounting {
			invalid += " -m nfacct --nfacct-name  " + invalidCounter // it is listed with two blanks
		}
		fwd.add(rule{match: invalid, target: "-j DROP"})
	}
	// A mark alone may be somebody else's, on a packet that the firewall chain is
	// for.
	marked := " -m mark --mark " + mark + "/" + mark + " -m conntrack --ctstate DNAT"
	fwd.add(rule{comment: "kubernetes forwarding rules", match: marked, target: "-j ACCEPT"})
}
