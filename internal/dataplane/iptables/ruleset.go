//go:build linux

package iptables

import (
	"fmt"
	"maps"
	"net/netip"
	"sync"

	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// ruleset is all chains of one family, as they should be.
type ruleset struct {
	family   model.Family
	features iptables.Features
	settings plan.Settings
	env      *environment // replaced, never changed

	trees  [treeCount]*tree
	groups map[portID]*group
	// hairpins has the number of groups with an endpoint.
	hairpins map[netip.Addr]int
	// frontends are those of all groups. mu guards them against concurrent readers.
	mu        sync.Mutex
	frontends map[plan.Key]*plan.Frontend

	// changed are the groups to be laid out, and chains the names of those in no dispatch
	// tree that were.
	changed     map[portID]bool
	chains      map[groupTable][]string
	settingsNew bool
	// out are chains that were laid out and are not in the kernel yet, by table.
	out map[string]chainTexts
}

// groupTable is the part of a group in a table.
type groupTable struct {
	id    portID
	table string
}

func newRuleset(family model.Family, features iptables.Features) *ruleset {
	return &ruleset{
		family:    family,
		features:  features,
		trees:     newTrees(words[family]),
		groups:    map[portID]*group{},
		hairpins:  map[netip.Addr]int{},
		frontends: map[plan.Key]*plan.Frontend{},
		changed:   map[portID]bool{},
		chains:    map[groupTable][]string{},
		out:       map[string]chainTexts{nat: {}, filter: {}, mangle: {}},
	}
}

// apply takes over the settings and health check node ports of a change.
func (rs *ruleset) apply(change *plan.Change) {
	if change.Settings != nil {
		rs.configure(*change.Settings)
	}
	for _, port := range change.HealthPortsRemoved {
		rs.setHealthPort(port, false)
	}
	for _, port := range change.HealthPortsAdded {
		rs.setHealthPort(port, true)
	}
}

// configure takes over new settings. All groups are made again if there is another detector of pods,
// which is in many rules. It is part of the configuration: a node whose addresses change keeps it.
func (rs *ruleset) configure(settings plan.Settings) {
	same := !rs.concernsAll(settings)
	rs.settings, rs.settingsNew = settings, true
	for tree, to := range nodePortTrees {
		rs.setNodePortIPs(rs.trees[tree], to)
	}
	if same {
		return
	}
	rs.env = &environment{words: words[rs.family], detector: settings.Detector(rs.family)}
	for _, g := range rs.groups {
		rs.replace(g.id, newGroup(g.id, g.frontends, rs.env))
	}
}

// concernsAll reports whether settings are in the rules of all frontends in another way than now.
func (rs *ruleset) concernsAll(settings plan.Settings) bool {
	return rs.env == nil || !rs.env.detector.Same(settings.Detector(rs.family))
}

// nodePortTrees select the addresses of node ports, and lead to these chains.
var nodePortTrees = map[treeName]string{nodePortIPTree: nodePortsChain, refusedPortIPTree: refusedPortsChain}

// setNodePortIPs has node ports answer on certain addresses, or on every local one but
// loopback: the kernel knows which those are.
func (rs *ruleset) setNodePortIPs(t *tree, to string) {
	kind := t.kind.(*dispatch)
	t.root, t.dirty, kind.tail = nil, true, nil
	if rs.settings.NodePortAll(rs.family) {
		kind.tail = []rule{{notDest: true, destination: words[rs.family].loopback, match: toNode, target: leave(to)}}
		return
	}
	for _, ip := range rs.settings.NodePortAddrs(rs.family) {
		t.set(addressKey(ip), singleRule{destination: single(ip), target: leave(to)})
	}
}

func (rs *ruleset) setHealthPort(port uint16, there bool) {
	r := singleRule{protocol: "tcp", comment: "health check node port", port: port, last: port, target: "-j ACCEPT"}
	rs.setRule(healthPortTree, portKey(model.TCP, port), r, there)
}

func (rs *ruleset) setRule(tree treeName, key treeKey, r singleRule, there bool) {
	if there {
		rs.trees[tree].set(key, r)
	} else {
		rs.trees[tree].unset(key, r)
	}
}

// replace replaces the group of a service port; nil is none.
func (rs *ruleset) replace(id portID, g *group) {
	old := rs.groups[id]
	rs.changed[id] = true
	rs.countHairpins(g, +1)
	rs.countHairpins(old, -1)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if old != nil {
		for _, e := range old.entries {
			rs.trees[e.tree].unset(e.key, e.writer)
		}
		for _, f := range old.frontends {
			if now := rs.frontends[f.Key]; now != nil && idOf(now) == id {
				delete(rs.frontends, f.Key)
			}
		}
	}
	if g == nil {
		delete(rs.groups, id)
		return
	}
	rs.groups[id] = g
	for _, e := range g.entries {
		rs.trees[e.tree].set(e.key, e.writer)
	}
	for _, f := range g.frontends {
		rs.frontends[f.Key] = f
	}
}

// frontend returns the one with a key, nil if there is none. It may be called
// concurrently.
func (rs *ruleset) frontend(k plan.Key) *plan.Frontend {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.frontends[k]
}

// countHairpins keeps refcounts of the endpoints, each of which may connect to
// itself. One on another node may too, through a node port of this one.
func (rs *ruleset) countHairpins(g *group, by int) {
	if g == nil || rs.features.BPF {
		return
	}
	for _, p := range g.pools {
		for _, e := range p.endpoints {
			ip := e.Addr()
			r := singleRule{source: single(ip), destination: single(ip), target: jump(markChain)}
			had := rs.hairpins[ip]
			switch rs.hairpins[ip] = had + by; {
			case had == 0:
				rs.setRule(hairpinTree, addressKey(ip), r, true)
			case had+by == 0:
				delete(rs.hairpins, ip)
				rs.setRule(hairpinTree, addressKey(ip), r, false)
			}
		}
	}
}

// layout adds to out all chains that changed since the last layout.
func (rs *ruleset) layout() {
	for id := range rs.changed {
		rs.layoutGroup(id)
	}
	for i, t := range rs.trees {
		t.layout(rs.out[treeName(i).table()])
	}
	if rs.settingsNew {
		rs.writeFixed()
	}
	rs.settingsNew = false
	clear(rs.changed)
}

// layoutGroup lays out the chains of a service port that are in no dispatch tree.
func (rs *ruleset) layoutGroup(id portID) {
	for _, table := range []string{nat, filter} {
		texts, at := chainTexts{}, groupTable{id, table}
		for _, name := range rs.chains[at] {
			texts[name] = nil
		}
		delete(rs.chains, at)
		if g := rs.groups[id]; g != nil {
			for _, write := range g.chainsIn(table) {
				write(texts)
			}
		}
		for _, text := range texts.sorted() {
			rs.chains[at] = append(rs.chains[at], text.Name)
		}
		maps.Copy(rs.out[table], texts)
	}
}

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
