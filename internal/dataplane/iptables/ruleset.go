package iptables

import (
	"net/netip"
	"slices"

	"sluice/internal/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// treeName says which tree.
type treeName uint8

// The trees of a family.
const (
	serviceTree  treeName = iota // nat: addresses with ports, of Services
	nodePortTree                 // nat: node ports
	nodePortIPTree
	hairpinTree         // nat: endpoints, if a program cannot find who connects to itself
	refusedServiceTree  // filter: ClusterIPs without endpoints
	refusedExternalTree // filter: external addresses without endpoints
	refusedPortTree     // filter: node ports without endpoints
	refusedPortIPTree
	firewallTree   // filter: addresses that not everybody may connect to
	healthPortTree // filter: health check node ports
	treeCount
)

// tableOf is the table that a tree is in.
func (t treeName) tableOf() string {
	if t <= hairpinTree {
		return nat
	}
	return filter
}

// world is all chains of one family, as they should be.
type ruleset struct {
	family   model.Family
	features iptables.Features
	settings plan.Settings
	env      *environment // replaced, never changed

	trees    [treeCount]*tree
	groups   map[portID]*group
	bigPools map[string]*bigPool
	// nodePortIPs, healthPorts and hairpins are what is in the trees; hairpins
	// with the number of groups that have the endpoint.
	nodePortIPs []netip.Addr
	healthPorts map[uint16]struct{}
	hairpins    map[netip.Addr]int

	// changed are groups and pools whose chains must be written, stale the
	// names of chains that were given up.
	changed     map[portID]*group
	changedBig  map[string]*bigPool
	stale       []string // all of table nat
	settingsNew bool
	// out are chains that were laid out and are not in the kernel yet, by table.
	out map[string]*chainTexts
}

func newRuleset(family model.Family, f iptables.Features) *ruleset {
	w := &ruleset{
		family:      family,
		features:    f,
		groups:      map[portID]*group{},
		bigPools:    map[string]*bigPool{},
		healthPorts: map[uint16]struct{}{},
		hairpins:    map[netip.Addr]int{},
		changed:     map[portID]*group{},
		changedBig:  map[string]*bigPool{},
		out:         map[string]*chainTexts{nat: newChainTexts(), filter: newChainTexts(), mangle: newChainTexts()},
	}
	bits := words[family].addressBits
	kinds := [treeCount]*dispatch{
		serviceTree: {enter: servicesChain, begin: addressesPrefix, addressBits: bits,
			tail: []rule{{target: jump(nodePortIPsChain)}}},
		nodePortTree:       {enter: nodePortsChain, begin: portsPrefix},
		nodePortIPTree:     {enter: nodePortIPsChain, begin: nodePortIPsPrefix, addressBits: bits},
		hairpinTree:        {enter: hairpinChain, begin: hairpinPrefix, addressBits: bits},
		refusedServiceTree: {enter: servicesChain, begin: addressesPrefix, addressBits: bits},
		refusedExternalTree: {enter: externalServicesChain, begin: externalAddressesPrefix, addressBits: bits,
			tail: []rule{{target: jump(nodePortIPsChain)}}},
		refusedPortTree:   {enter: refusedPortsChain, begin: portsPrefix},
		refusedPortIPTree: {enter: nodePortIPsChain, begin: nodePortIPsPrefix, addressBits: bits},
		firewallTree:      {enter: firewallChain, begin: firewallPrefix, addressBits: bits},
		healthPortTree:    {enter: nodePortsChain, begin: healthPortsPrefix},
	}
	for i, k := range kinds {
		w.trees[i] = newTree(k, chainRules)
	}
	return w
}

// configure takes new settings over. Who counts as a pod is in many rules.
func (w *ruleset) configure(s plan.Settings) {
	w.settings, w.settingsNew = s, true
	w.env = &environment{words: words[w.family], detector: s.Detector(w.family)}
	all := s.NodePortAll(w.family)
	var ips []netip.Addr // none where all do: the kernel knows better which those are
	for _, ip := range s.NodePortIPs {
		if !all && model.FamilyOf(ip) == w.family {
			ips = append(ips, ip)
		}
	}
	w.setNodePortAll(all)
	for _, ip := range w.nodePortIPs {
		if !slices.Contains(ips, ip) {
			w.setNodePortIP(ip, false)
		}
	}
	for _, ip := range ips {
		if !slices.Contains(w.nodePortIPs, ip) {
			w.setNodePortIP(ip, true)
		}
	}
	w.nodePortIPs = ips
	for _, g := range w.groups {
		w.replace(g.id, newGroup(g.id, g.frontends, w.env))
	}
}

// apply takes over what a change says besides frontends.
func (w *ruleset) apply(change *plan.Change) {
	if change.Settings != nil {
		w.configure(*change.Settings)
	}
	for _, port := range change.HealthPortsRemoved {
		w.setHealthPort(port, false)
	}
	for _, port := range change.HealthPortsAdded {
		w.setHealthPort(port, true)
	}
}

// nodePortTrees find out whether node ports answer on an address, and lead to
// these chains.
var nodePortTrees = map[treeName]string{nodePortIPTree: nodePortsChain, refusedPortIPTree: refusedPortsChain}

// setNodePortAll has node ports answer on every local address but loopback, or no
// longer.
func (w *ruleset) setNodePortAll(all bool) {
	for tree, to := range nodePortTrees {
		t := w.trees[tree]
		t.kind.(*dispatch).tail = nil
		if all {
			t.kind.(*dispatch).tail = []rule{{notDest: true, destination: words[w.family].loopback, match: toNode, target: leave(to)}}
		}
		t.dirty = true
	}
}

func (w *ruleset) setNodePortIP(ip netip.Addr, there bool) {
	for tree, to := range nodePortTrees {
		e := fixed{destination: single(ip), target: leave(to)}
		if there {
			w.trees[tree].set(addressPlace(ip), e)
		} else {
			w.trees[tree].unset(addressPlace(ip), e)
		}
	}
}

func (w *ruleset) setHealthPort(port uint16, there bool) {
	if _, already := w.healthPorts[port]; already == there {
		return
	}
	at := portPlace(model.TCP, port)
	e := fixed{protocol: "tcp", comment: "health check node port", port: port, last: port, target: "-j ACCEPT"}
	if there {
		w.healthPorts[port] = struct{}{}
		w.trees[healthPortTree].set(at, e)
	} else {
		delete(w.healthPorts, port)
		w.trees[healthPortTree].unset(at, e)
	}
}

// fixed is an entry of one rule.
type fixed rule

func (fixed) weight() int          { return 1 }
func (r fixed) write(p *chainText) { p.own(); p.add(rule(r)) }

// replace exchanges the group of a service port; nil is none.
func (w *ruleset) replace(id portID, g *group) {
	old := w.groups[id]
	w.countHairpins(g, +1)
	w.countHairpins(old, -1)
	if old != nil {
		w.remove(old, g)
	}
	if g == nil {
		delete(w.groups, id)
		delete(w.changed, id)
		return
	}
	w.groups[id] = g
	for _, e := range g.entries {
		w.trees[e.tree].set(e.at, e.written)
	}
	for _, p := range g.pools {
		if p.chain != "" && p.big() {
			w.putBig(p)
		}
	}
	w.changed[id] = g
}

// countHairpins keeps account of the endpoints, each of which may connect to
// itself. One on another node may too, through a node port of this one.
func (w *ruleset) countHairpins(g *group, by int) {
	if g == nil || w.features.BPF {
		return
	}
	for _, p := range g.pools {
		for _, e := range p.endpoints {
			ip := e.Addr()
			rule := fixed{source: single(ip), destination: single(ip), target: jump(markChain)}
			had := w.hairpins[ip]
			switch w.hairpins[ip] = had + by; {
			case had == 0:
				w.trees[hairpinTree].set(addressPlace(ip), rule)
			case had+by == 0:
				delete(w.hairpins, ip)
				w.trees[hairpinTree].unset(addressPlace(ip), rule)
			}
		}
	}
}

// remove takes away what an old group has and a new one has not.
func (w *ruleset) remove(old, g *group) {
	kept := map[treeName]map[place]bool{}
	names := map[string]bool{}
	bigs := map[string]bool{}
	if g != nil {
		for _, e := range g.entries {
			if kept[e.tree] == nil {
				kept[e.tree] = map[place]bool{}
			}
			kept[e.tree][e.at] = true
		}
		for _, c := range g.chains {
			names[c.name] = true
		}
		for _, p := range g.pools {
			bigs[p.chain] = p.big()
		}
	}
	for _, e := range old.entries {
		if !kept[e.tree][e.at] {
			w.trees[e.tree].unset(e.at, e.written)
		}
	}
	for _, c := range old.chains {
		if !names[c.name] {
			w.stale = append(w.stale, c.name)
		}
	}
	for _, p := range old.pools {
		if b := w.bigPools[p.chain]; b != nil && !bigs[p.chain] {
			w.giveUp(b)
		}
	}
}

// putBig takes over a pool that needs more than one chain.
func (w *ruleset) putBig(p *pool) {
	b := w.bigPools[p.chain]
	switch {
	case b.fits(p):
		b.set(p)
	case b != nil:
		w.giveUp(b)
		fallthrough
	default:
		b = newBigPool(p)
	}
	w.bigPools[p.chain], w.changedBig[p.chain] = b, b
}

func (w *ruleset) giveUp(b *bigPool) {
	w.stale = append(w.stale, b.chains()...)
	delete(w.bigPools, b.pool.chain)
	delete(w.changedBig, b.pool.chain)
}

// layout adds to out all chains that changed since the last layout.
func (w *ruleset) layout() {
	out := w.out
	for _, name := range w.stale {
		out[nat].drop(name)
	}
	for _, g := range w.changed {
		for _, c := range g.chains {
			c.write(out[nat].begin(c.name))
		}
	}
	for _, b := range w.changedBig {
		b.layout(out[nat])
	}
	for i, t := range w.trees {
		t.layout(out[treeName(i).tableOf()])
	}
	if w.settingsNew {
		w.writeFixed()
	}
	w.stale, w.settingsNew = nil, false
	clear(w.changed)
	clear(w.changedBig)
}
