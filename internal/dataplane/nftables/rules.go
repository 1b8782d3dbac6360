//go:build linux

package nftables

import (
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// rules returns the chain's rules. Each has a tag made of its contents, by which a
// later process recognises it.
func (c chain) rules(l *layout, s *tableSettings) []nft.Rule {
	w := &ruleWriter{layout: l, settings: s, chain: c.name()}
	switch c.kind {
	case prerouting, output:
		w.jump(anyPacket, chain{kind: dispatch})
	case dispatch:
		w.dispatch()
	case postrouting:
		w.goTo(anyPacket.HasMark(s.MasqueradeMark), chain{kind: masqueraded})
		w.add(anyPacket.In(hairpin, nft.Concat{l.source, l.dest}).Masquerade())
	case masqueraded:
		w.add(anyPacket.FlipMark(s.MasqueradeMark))
		w.add(anyPacket.Masquerade())
	case mark:
		w.add(anyPacket.SetMark(s.MasqueradeMark))
	case markOffCluster:
		w.eachPodMatch(func(match nft.Exprs) { w.add(match.Return()) })
		w.goTo(anyPacket, chain{kind: mark})
	case reject:
		w.add(anyPacket.RejectTCP())
		w.add(anyPacket.RejectPort(l.nf))
	case dropSource, dropPortSource:
		w.dropSource(c)
	case forward:
		w.jump(anyPacket.New(), chain{kind: unknown})
	case filterOutput:
		w.jump(anyPacket.New(), chain{kind: unknown})
		if s.ExclusiveIPs {
			// Segments of connections that the balancer has forgotten: their clients on the
			// node must learn of it.
			w.goTo(anyPacket.New().HasProtocol(unix.IPPROTO_TCP).In(exclusiveIPs, nft.Concat{l.dest}).NotToLocal(), chain{kind: reject})
		}
	case targetInput:
		w.addAll(s.target.Input)
	case findRange:
		w.findRange(c.split)
	case unknown:
		w.unknown()
	case entry:
		w.entry(c)
	case balance:
		w.balance(c)
	case recall:
		w.recall(c)
	case rememberPostrouting, rememberInput:
		w.jump(anyPacket.New().DNATed(), chain{kind: remembering})
	case remembering:
		w.remembering()
	case remember:
		w.remember(c)
	}
	return w.rules
}

// ruleWriter collects the rules of one chain.
type ruleWriter struct {
	*layout
	settings *tableSettings
	chain    string
	rules    []nft.Rule
}

// anyPacket is the start of a rule.
var anyPacket nft.Exprs

func (w *ruleWriter) add(e nft.Exprs) { w.addRule(e, false) }

func (w *ruleWriter) addRule(e nft.Exprs, protocols bool) {
	w.rules = append(w.rules, nft.Rule{Chain: w.chain, Exprs: e, Tag: e.Tag(), Protocols: protocols})
}

func (w *ruleWriter) addAll(rules []nft.Rule) {
	for _, r := range rules {
		w.addRule(r.Exprs, r.Protocols)
	}
}

// goTo adds a rule that goes to a chain, or drops; jump one that returns from it.
func (w *ruleWriter) goTo(e nft.Exprs, c chain) { w.add(e.Verdict(verdictTo(c.name()))) }
func (w *ruleWriter) jump(e nft.Exprs, c chain) { w.add(e.Jump(c.name())) }

// eachPodMatch calls f with each match that detects pods.
func (w *ruleWriter) eachPodMatch(f func(nft.Exprs)) {
	d := w.settings.Detector(w.family)
	for _, p := range d.Sources {
		f(anyPacket.Within(w.source, p))
	}
	if d.Interface != "" {
		f(anyPacket.FromInterface(d.Interface, false))
	}
	if d.InterfacePrefix != "" {
		f(anyPacket.FromInterface(d.InterfacePrefix, true))
	}
}

func (w *ruleWriter) dispatch() {
	w.add(anyPacket.VerdictMap(services, w.frontendKey(false)))
	w.add(w.toNodePortIP().VerdictMap(nodePorts, w.frontendKey(true)))
	if w.settings.blocks.some() {
		w.jump(anyPacket.In(rangeIPs, nft.Concat{w.dest}), chain{kind: findRange})
	}
	if w.settings.ExclusiveIPs {
		// After routing it would be too late: the kernel sends no ICMP errors from
		// addresses that routes deliver to the node.
		w.jump(anyPacket, chain{kind: unknown})
		for _, p := range protocols {
			w.goTo(anyPacket.HasProtocol(byte(p)).In(exclusiveIPs, nft.Concat{w.dest}).NotToLocal(), chain{kind: reject})
		}
	}
}

// toNodePortIP matches packets to the addresses of node ports.
func (w *ruleWriter) toNodePortIP() nft.Exprs {
	if w.settings.NodePortAll(w.family) {
		return anyPacket.NotWithin(w.dest, w.loopback).ToLocal()
	}
	return anyPacket.In(nodePortIPs, nft.Concat{w.dest})
}

// unknown rejects packets to ports of ClusterIPs that no frontend has, and drops those
// to addresses that no Service has. Traffic reads the counters of the rules in this order.
func (w *ruleWriter) unknown() {
	w.goTo(w.counted(anyPacket.In(clusterIPs, nft.Concat{w.dest})), chain{kind: reject})
	for _, p := range w.settings.ServiceCIDRs {
		if model.FamilyOf(p.Addr()) == w.family {
			w.add(w.counted(anyPacket.Within(w.dest, p)).Drop())
		}
	}
}

// counted counts the packets that match, if anything is counted.
func (w *ruleWriter) counted(e nft.Exprs) nft.Exprs {
	if w.uncounted {
		return e
	}
	return e.Count()
}

// dropSource always drops: the elements of the map, or set, are for their counters.
func (w *ruleWriter) dropSource(c chain) {
	if c.ranged() {
		w.add(anyPacket.In(rangeFilters, w.keyOf(c)).Drop())
	} else {
		key := nft.Concat{w.filtered(c.kind == dropPortSource), nft.Protocol, nft.DestPort}
		w.add(anyPacket.VerdictMap(filters, key))
	}
	w.add(anyPacket.Drop())
}

// filter admits packets from the frontend's source ranges. These are in a hash table, so
// each prefix length takes a lookup.
func (w *ruleWriter) filter(c chain) {
	for bits := range c.lengths.all() {
		w.goTo(anyPacket.In(c.maps().sources, w.sourceKey(c, bits)), c.admitted())
	}
	w.goTo(anyPacket, c.notAdmitted())
}

func (w *ruleWriter) entry(c chain) {
	if c.filtered {
		w.filter(c)
		return
	}
	switch c.masquerade {
	case plan.MasqueradeAlways:
		w.jump(anyPacket, chain{kind: mark})
	case plan.MasqueradeOffCluster:
		w.jump(anyPacket, chain{kind: markOffCluster})
	}
	if !c.split {
		w.goTo(anyPacket, c.next())
		return
	}
	w.eachPodMatch(func(match nft.Exprs) { w.goTo(match, c.next()) })
	if c.masquerade == plan.MasqueradeNode {
		w.jump(anyPacket.FromLocal(), chain{kind: mark})
	}
	w.goTo(anyPacket.FromLocal(), c.next())
	if c.ranged() {
		w.goTo(anyPacket, chain{kind: findRange, split: true})
		return
	}
	w.add(anyPacket.VerdictMap(c.maps().outside, w.keyOf(c)))
}

// endpointMap returns the map of a pool's endpoints.
func (c chain) endpointMap() string {
	if c.local {
		return c.maps().outsideSlots
	}
	return c.maps().slots
}

func (w *ruleWriter) balance(c chain) {
	if c.choice == byTarget {
		w.toTarget(c.local)
		return
	}
	if c.sticky {
		w.add(anyPacket.VerdictMap(c.maps().recall, w.keyOf(c)))
		c.sticky = false
		w.goTo(anyPacket, c)
		return
	}
	slot := nft.Random(c.size)
	switch c.choice {
	case fromMany:
		// A slot that the pool does not have is no match, and the last number is of one that every pool has.
		for range slotTries {
			w.toSlot(c, slot)
		}
		slot = nft.Random(c.size - stepTo(c.size) + 1)
	case inTurn:
		slot = nft.Incremental(c.size)
	case byClient, byPool:
		slot = nft.Hash(w.source, c.size, plan.HashSeed)
	}
	if c.choice == byPool {
		w.addRule(anyPacket.DNATMap(w.nf, pools, poolSlot(c.port, slot)), true)
		return
	}
	w.toSlot(c, slot)
}

// toSlot leads connections to a slot of the chain's frontend. Those to a range keep their port.
func (w *ruleWriter) toSlot(c chain, slot nft.Value) {
	key := append(w.keyOf(c), slot)
	if c.ranged() {
		w.add(anyPacket.DNATAddrMap(w.nf, c.endpointMap(), key))
		return
	}
	w.addRule(anyPacket.DNATMap(w.nf, c.endpointMap(), key), true)
}

// slotTries is how often a slot of a large pool is chosen: at most every ninth choice is in vain, and one in
// 6561 connections is led to a slot that every pool of that chain has.
const slotTries = 4

// toTarget leads connections to the target.
func (w *ruleWriter) toTarget(outside bool) {
	rules := w.settings.target.Route
	if outside {
		rules = w.settings.target.Outside
	}
	if len(rules) == 0 {
		w.goTo(anyPacket, chain{kind: reject})
	}
	w.addAll(rules)
}

// recall sends a client to the endpoint that is remembered for the service port. Under
// external traffic policy Local, clients from outside have another pool than the
// others.
func (w *ruleWriter) recall(c chain) {
	if c.split {
		inside, outside := c.recallFrom()
		w.eachPodMatch(func(match nft.Exprs) { w.goTo(match, inside) })
		w.goTo(anyPacket.FromLocal(), inside)
		w.goTo(anyPacket, outside)
		return
	}
	client := append(nft.Concat{w.source}, c.port.values()...)
	w.add(anyPacket.HasProtocol(byte(c.protocol)).DNATMap(w.nf, c.port.clientMap(c.local).name(), client))
}

var protocols = [...]model.Protocol{model.TCP, model.UDP, model.SCTP}

// remembering finds the frontend of a connection. There is a rule for each protocol
// because otherwise nft 1.0.6 cannot load its own listing with ports of a connection's
// tuple.
func (w *ruleWriter) remembering() {
	for _, p := range protocols {
		w.add(anyPacket.HasProtocol(byte(p)).VerdictMap(sticky, w.tupleKey(false)))
	}
	for _, p := range protocols {
		match := anyPacket.HasProtocol(byte(p))
		if !w.settings.NodePortAll(w.family) {
			// Otherwise it cannot be matched: fib has the type of the packet's own
			// addresses only, and its destination is the endpoint by now.
			match = match.In(nodePortIPs, nft.Concat{nft.TupleDest(w.nf, nft.Original)})
		}
		w.add(match.VerdictMap(nodePortSticky, w.tupleKey(true)))
	}
}

// remember stores the client's endpoint, for each pool of the service port that has
// it. The endpoint is read from the reply's tuple: if the rule loaded the port from the
// packet, nft 1.0.6 would not list the match of the protocol.
func (w *ruleWriter) remember(c chain) {
	client := append(nft.Concat{nft.TupleSource(w.nf, nft.Original)}, c.port.values()...)
	endpoint := nft.Concat{nft.TupleSource(w.nf, nft.Reply), nft.TupleSourcePort(nft.Reply)}
	affine := append(slices.Clone(endpoint), c.port.values()...)
	for _, local := range []bool{false, true} {
		match := anyPacket.HasProtocol(byte(c.protocol)).New().In(affinityEndpointsOf(local), affine)
		w.add(match.Update(c.port.clientMap(local).name(), client, endpoint, c.seconds))
	}
}
