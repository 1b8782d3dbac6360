package iptables

import (
	"net/netip"
	"slices"

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

	trees    [treeCount]*tree
	groups   map[portID]*group
	bigPools map[string]*bigPool
	// nodePortIPs, healthPorts and hairpins are in the trees; hairpins has the number
	// of groups with an endpoint.
	nodePortIPs []netip.Addr
	healthPorts map[uint16]struct{}
	hairpins    map[netip.Addr]int

	// changed are groups and pools whose chains must be written, stale the names of
	// chains, all in table nat, that are no longer needed.
	changed     map[portID]*group
	changedBig  map[string]*bigPool
	stale       []string
	settingsNew bool
	// out are chains that were laid out and are not in the kernel yet, by table.
	out map[string]*chainTexts
}

func newRuleset(family model.Family, features iptables.Features) *ruleset {
	return &ruleset{
		family:      family,
		features:    features,
		trees:       newTrees(words[family]),
		groups:      map[portID]*group{},
		bigPools:    map[string]*bigPool{},
		healthPorts: map[uint16]struct{}{},
		hairpins:    map[netip.Addr]int{},
		changed:     map[portID]*group{},
		changedBig:  map[string]*bigPool{},
		out:         map[string]*chainTexts{nat: newChainTexts(), filter: newChainTexts(), mangle: newChainTexts()},
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

// configure takes over new settings. All groups are made again: the detector of pods
// is in many rules.
func (rs *ruleset) configure(settings plan.Settings) {
	rs.settings, rs.settingsNew = settings, true
	rs.env = &environment{words: words[rs.family], detector: settings.Detector(rs.family)}
	all := settings.NodePortAll(rs.family)
	var ips []netip.Addr // none if all are used: the kernel knows which those are
	if !all {
		ips = settings.NodePortAddrs(rs.family)
	}
	rs.setNodePortAll(all)
	for _, ip := range rs.nodePortIPs {
		if !slices.Contains(ips, ip) {
			rs.setNodePortIP(ip, false)
		}
	}
	for _, ip := range ips {
		if !slices.Contains(rs.nodePortIPs, ip) {
			rs.setNodePortIP(ip, true)
		}
	}
	rs.nodePortIPs = ips
	for _, g := range rs.groups {
		rs.replace(g.id, newGroup(g.id, g.frontends, rs.env))
	}
}

// nodePortTrees select the addresses of node ports, and lead to these chains.
var nodePortTrees = map[treeName]string{nodePortIPTree: nodePortsChain, refusedPortIPTree: refusedPortsChain}

// setNodePortAll says whether node ports answer on every local address but loopback.
func (rs *ruleset) setNodePortAll(all bool) {
	for tree, to := range nodePortTrees {
		t := rs.trees[tree]
		t.kind.(*dispatch).tail = nil
		if all {
			t.kind.(*dispatch).tail = []rule{{notDest: true, destination: words[rs.family].loopback, match: toNode, target: leave(to)}}
		}
		t.dirty = true
	}
}

func (rs *ruleset) setNodePortIP(ip netip.Addr, there bool) {
	for tree, to := range nodePortTrees {
		rs.setRule(tree, addressKey(ip), singleRule{destination: single(ip), target: leave(to)}, there)
	}
}

func (rs *ruleset) setHealthPort(port uint16, there bool) {
	if _, already := rs.healthPorts[port]; already == there {
		return
	}
	if there {
		rs.healthPorts[port] = struct{}{}
	} else {
		delete(rs.healthPorts, port)
	}
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
	rs.countHairpins(g, +1)
	rs.countHairpins(old, -1)
	if old != nil {
		rs.remove(old, g)
	}
	if g == nil {
		delete(rs.groups, id)
		delete(rs.changed, id)
		return
	}
	rs.groups[id] = g
	for _, e := range g.entries {
		rs.trees[e.tree].set(e.key, e.writer)
	}
	for _, p := range g.pools {
		if p.chain != "" && p.big() {
			rs.putBig(p)
		}
	}
	rs.changed[id] = g
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

// remove removes what an old group has and a new one, which may be nil, has not.
func (rs *ruleset) remove(old, g *group) {
	type position struct {
		tree treeName
		key  treeKey
	}
	kept := map[position]bool{}
	names := map[string]bool{}
	bigs := map[string]bool{}
	if g != nil {
		for _, e := range g.entries {
			kept[position{e.tree, e.key}] = true
		}
		for _, c := range g.chains {
			names[c.name] = true
		}
		for _, p := range g.pools {
			bigs[p.chain] = p.big()
		}
	}
	for _, e := range old.entries {
		if !kept[position{e.tree, e.key}] {
			rs.trees[e.tree].unset(e.key, e.writer)
		}
	}
	for _, c := range old.chains {
		if !names[c.name] {
			rs.stale = append(rs.stale, c.name)
		}
	}
	for _, p := range old.pools {
		if b := rs.bigPools[p.chain]; b != nil && !bigs[p.chain] {
			rs.removeBig(b)
		}
	}
}

// putBig takes over a pool that needs more than one chain.
func (rs *ruleset) putBig(p *pool) {
	b := rs.bigPools[p.chain]
	switch {
	case b.fits(p):
		b.set(p)
	case b != nil:
		rs.removeBig(b)
		fallthrough
	default:
		b = newBigPool(p)
	}
	rs.bigPools[p.chain], rs.changedBig[p.chain] = b, b
}

func (rs *ruleset) removeBig(b *bigPool) {
	rs.stale = append(rs.stale, b.chains()...)
	delete(rs.bigPools, b.pool.chain)
	delete(rs.changedBig, b.pool.chain)
}

// layout adds to out all chains that changed since the last layout.
func (rs *ruleset) layout() {
	for _, name := range rs.stale {
		rs.out[nat].drop(name)
	}
	for _, g := range rs.changed {
		for _, c := range g.chains {
			c.write(rs.out[nat].begin(c.name))
		}
	}
	for _, b := range rs.changedBig {
		b.layout(rs.out[nat])
	}
	for i, t := range rs.trees {
		t.layout(rs.out[treeName(i).table()])
	}
	if rs.settingsNew {
		rs.writeFixed()
	}
	rs.stale, rs.settingsNew = nil, false
	clear(rs.changed)
	clear(rs.changedBig)
}
