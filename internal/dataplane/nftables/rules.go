package nftables

import (
	"hash/fnv"
	"slices"

	"sluice/internal/model"
	"sluice/internal/nft"
	"sluice/internal/plan"
)

// rule is a rule for the kernel, and as nft(8) lists it.
type rule struct {
	nft.Rule
	text string
}

// rules are the chain's rules in order. Each carries a tag made of its content,
// by which a later process sees whether it is still the rule it wants.
func (c chain) rules(l *layout, s *plan.Settings) []rule {
	w := &ruleWriter{layout: l, settings: s, chain: c.name()}
	switch c.kind {
	case prerouting, output:
		w.add(goOn().jump(chain{kind: dispatch}))
	case dispatch:
		w.dispatch()
	case postrouting:
		w.add(goOn().markIs(s.MasqueradeMark).goTo(chain{kind: masqueraded}))
		w.add(goOn().in(hairpin, concat{l.sourceAddr(), l.destAddr()}).masquerade())
	case masqueraded:
		w.add(goOn().takeMark(s.MasqueradeMark))
		w.add(goOn().masquerade())
	case mark:
		w.add(goOn().putMark(s.MasqueradeMark))
	case markOffCluster:
		w.eachPodMatch(func(match expr) { w.add(match.back()) })
		w.add(goOn().goTo(chain{kind: mark}))
	case reject:
		w.add(goOn().refuseTCP())
		w.add(goOn().refuse(l.nf))
	case dropSource:
		w.dropSource()
	case forward, filterOutput:
		w.add(goOn().isNew().jump(chain{kind: unknown}))
	case unknown:
		w.unknown()
	case entry:
		w.entry(c)
	case balance:
		w.balance(c)
	case recall:
		w.recall(c)
	case rememberPostrouting, rememberInput:
		w.add(goOn().isNew().isTranslated().jump(chain{kind: remembering}))
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
	settings *plan.Settings
	chain    string
	rules    []rule
}

func (w *ruleWriter) add(e expr)         { w.rule(e, false) }
func (w *ruleWriter) addForPorts(e expr) { w.rule(e, true) }
func (w *ruleWriter) rule(e expr, p bool) {
	h := fnv.New64a()
	h.Write(e.attrs)
	if p {
		e.text = nft.ProtocolsText + " " + e.text
	}
	w.rules = append(w.rules, rule{nft.Rule{Chain: w.chain, Exprs: e.attrs, Tag: h.Sum64(), Protocols: p}, e.text})
}

// eachPodMatch calls f with a match for every way to be a pod.
func (w *ruleWriter) eachPodMatch(f func(expr)) {
	d := w.settings.Detector(w.family)
	for _, p := range d.Sources {
		f(goOn().inPrefix(w.sourceAddr(), p))
	}
	if d.Interface != "" {
		f(goOn().cameBy(d.Interface, false))
	}
	if d.InterfacePrefix != "" {
		f(goOn().cameBy(d.InterfacePrefix, true))
	}
}

func (w *ruleWriter) dispatch() {
	w.add(goOn().lookUp(services, w.frontendKey(false)))
	w.add(w.toNodePortIP().lookUp(nodePorts, w.frontendKey(true)))
}

// toNodePortIP matches packets to addresses that node ports answer on.
func (w *ruleWriter) toNodePortIP() expr {
	if w.settings.NodePortAll(w.family) {
		return goOn().notInPrefix(w.destAddr(), w.loopback).destIsLocal()
	}
	return goOn().in(nodePortIPs, concat{w.destAddr()})
}

// unknown refuses ports of ClusterIPs that no frontend has, and drops what goes
// to addresses that no Service has. Each of its rules counts; Traffic reads them
// in this order.
func (w *ruleWriter) unknown() {
	w.add(goOn().in(clusterIPs, concat{w.destAddr()}).count().goTo(chain{kind: reject}))
	for _, p := range w.settings.ServiceCIDRs {
		if model.FamilyOf(p.Addr()) == w.family {
			w.add(goOn().inPrefix(w.destAddr(), p).count().drop())
		}
	}
}

// dropSource drops in any case: the map is there because its elements count. Node
// ports have no source ranges.
func (w *ruleWriter) dropSource() {
	w.add(goOn().lookUp(filters, w.frontendKey(false)))
	w.add(goOn().drop())
}

// filter lets those go on who are in one of the frontend's source ranges. These are in
// a hash table, so each of their lengths takes a lookup.
func (w *ruleWriter) filter(c chain) {
	for bits := range c.lengths.all() {
		w.add(goOn().in(sources, w.sourceKey(c.protocol, bits)).goTo(c.admitted()))
	}
	w.add(goOn().goTo(chain{kind: dropSource}))
}

func (w *ruleWriter) entry(c chain) {
	if c.filtered {
		w.filter(c)
		return
	}
	switch c.masquerade {
	case plan.MasqueradeAlways:
		w.add(goOn().jump(chain{kind: mark}))
	case plan.MasqueradeOffCluster:
		w.add(goOn().jump(chain{kind: markOffCluster}))
	}
	if !c.split {
		w.add(goOn().goTo(c.target()))
		return
	}
	w.eachPodMatch(func(match expr) { w.add(match.goTo(c.target())) })
	if c.masquerade == plan.MasqueradeNode {
		w.add(goOn().sourceIsLocal().jump(chain{kind: mark}))
	}
	w.add(goOn().sourceIsLocal().goTo(c.target()))
	set := outside
	if c.nodePort {
		set = nodePortOutside
	}
	w.add(goOn().lookUp(set, w.frontendKey(c.nodePort)))
}

// endpointMap is the map of a pool's endpoints.
func (c chain) endpointMap() string {
	switch {
	case c.nodePort && c.local:
		return nodePortLocal
	case c.nodePort:
		return nodePortEndpoints
	case c.local:
		return localEndpoints
	}
	return endpoints
}

func (w *ruleWriter) balance(c chain) {
	if c.sticky {
		set := recalls
		if c.nodePort {
			set = nodePortRecalls
		}
		w.add(goOn().lookUp(set, w.frontendKey(c.nodePort)))
		c.sticky = false
		w.add(goOn().goTo(c))
		return
	}
	w.addForPorts(goOn().translate(w.layout, c.endpointMap(), append(w.frontendKey(c.nodePort), random(c.size))))
}

// recall sends a client to the endpoint that is remembered of it at any frontend
// of the service port. Under external traffic policy Local, talkers from outside
// have another pool than the others.
func (w *ruleWriter) recall(c chain) {
	if c.split {
		inside, outside := c.recallFrom()
		w.eachPodMatch(func(match expr) { w.add(match.goTo(inside)) })
		w.add(goOn().sourceIsLocal().goTo(inside))
		w.add(goOn().goTo(outside))
		return
	}
	client := append(concat{w.sourceAddr()}, c.port.values()...)
	w.add(goOn().protocolIs(c.protocol).translate(w.layout, affinityMap(c.local), client))
}

var protocols = []model.Protocol{model.TCP, model.UDP, model.SCTP}

// remembering finds the frontend that a connection came by. There is a rule for
// each protocol because nft 1.0.6 cannot load a listing with ports of a
// connection's tuple otherwise.
func (w *ruleWriter) remembering() {
	for _, p := range protocols {
		w.add(goOn().protocolIs(p).lookUp(sticky, w.tupleKey(false)))
	}
	for _, p := range protocols {
		match := goOn().protocolIs(p)
		if !w.settings.NodePortAll(w.family) {
			// Else it cannot be asked: the packet is on its way to the endpoint, and
			// only of its own addresses the kernel tells whether they are local.
			match = match.in(nodePortIPs, concat{w.tupleDest()})
		}
		w.add(match.lookUp(nodePortSticky, w.tupleKey(true)))
	}
}

// remember notes which endpoint the client got, for each of the service port's
// pools that has it. The endpoint is taken from the reply's tuple: nft 1.0.6 would
// drop the match of the protocol from its listing if the rule loaded the port from
// the packet.
func (w *ruleWriter) remember(c chain) {
	client := append(concat{w.tupleSource(nft.Original)}, c.port.values()...)
	endpoint := concat{w.tupleSource(nft.Reply), replySourcePort}
	affine := append(slices.Clone(endpoint), c.port.values()...)
	w.add(goOn().protocolIs(c.protocol).isNew().in(affinityEndpoints, affine).note(affinity, client, endpoint, c.seconds))
	w.add(goOn().protocolIs(c.protocol).isNew().in(localAffinityEndpoints, affine).note(localAffinity, client, endpoint, c.seconds))
}
