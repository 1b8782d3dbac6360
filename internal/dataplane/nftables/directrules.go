//go:build linux

package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Packets of clients outside pass these chains:
//
//	netdev ingress       before connection tracking: those of another node are handed to it
//	ip     second-chance after connection tracking, of connections that it does not know: those that were put
//	                     together from fragments, and those that another node may know
//	ip     receive       before the table of the Services: this node's own, and those that a peer handed on, are
//	                     led to endpoints on this node, and keep their source
//
// What a node handed on is known by who sent it on the link: it is never handed on again, except once to nodes that
// may know its connection, if this one does not. That leaves it a TTL which says so: with askedTTL it is dropped by
// who does not know it either, because others were asked as well.
const (
	askedTTL  = 4
	secondTTL = 3

	priorityIngress       = -150
	prioritySecondChance  = -150
	priorityReceive       = priorityDestNAT - 10
	secondChance, receive = "second-chance", "receive"
	fromPeer              = "from-peer"
)

// The sets that frontends and nodes share. The tables of IPv4 and IPv6 have the last ones.
const (
	peers       = "peers"        // the other nodes, by their address on the link
	peerAddrs   = "peer-ips"     // and their addresses
	handedBy    = "handed-by"    // and how many connections each has handed to this one
	nodeIPs     = "node-ips"     // addresses at which some node answers at node ports
	second      = "second"       // frontends, to the chain for second chances
	secondPorts = "second-ports" // and node ports
	received    = "received"     // frontends, to the chain that leads them to an endpoint here
	recvPorts   = "received-ports"
)

// The sets of the table of family netdev for an IP family.
func ingressFrontends(f model.Family) string { return "frontends-" + layouts[f].nf.String() }
func ingressErrors(f model.Family) string    { return "errors-" + layouts[f].nf.String() }
func proofs(f model.Family) string           { return "proofs-" + layouts[f].nf.String() }

// ingressSets are the sets of the table of family netdev.
func ingressSets() []*nft.Set {
	plain := func(parts ...nft.Value) nft.Type { return nft.Type{Parts: parts} }
	sets := []*nft.Set{{Name: peers, Key: plain(nft.EtherSource)}}
	for _, f := range model.Families {
		l := layouts[f]
		frontend := plain(l.dest, nft.HeaderProtocol(l.nf), nft.DestPort)
		sets = append(sets,
			&nft.Set{Name: ingressFrontends(f), Key: frontend, Data: nft.VerdictType},
			&nft.Set{Name: ingressErrors(f), Key: frontend, Data: nft.VerdictType},
			&nft.Set{Name: proofs(f), Key: plain(l.dest, nft.Protocol), Dynamic: true, Size: maxProofs},
		)
	}
	return sets
}

// maxProofs bounds how many probes are remembered.
const maxProofs = 1 << 14

// sharedSets are the sets of the table of an IP family that frontends and nodes share.
func (l *layout) sharedSets() []*nft.Set {
	plain := func(parts ...nft.Value) nft.Type { return nft.Type{Parts: parts} }
	frontend, port := plain(l.dest, nft.Protocol, nft.DestPort), plain(nft.Protocol, nft.DestPort)
	return []*nft.Set{
		{Name: peers, Key: plain(nft.EtherSource)},
		{Name: peerAddrs, Key: plain(nft.EtherSource), Data: plain(l.dest)},
		{Name: handedBy, Key: plain(nft.EtherSource), Counter: true},
		{Name: nodeIPs, Key: plain(l.dest)},
		{Name: second, Key: frontend, Data: nft.VerdictType},
		{Name: secondPorts, Key: port, Data: nft.VerdictType},
		{Name: received, Key: frontend, Data: nft.VerdictType},
		{Name: recvPorts, Key: port, Data: nft.VerdictType},
	}
}

// localSet is the map of endpoints here that connections of a pool are led to.
func (l *layout) localSet(id affinityID) *nft.Set {
	endpoint := nft.Type{Parts: nft.Concat{l.dest, nft.DestPort}, Typeof: true}
	return &nft.Set{Name: localOf(id), Key: l.slotNumber(), Data: endpoint}
}

// askedSet is a map of nodes that are asked for connections that are not known here.
func (r *handover) askedSet(l *layout, n int) *nft.Set {
	return &nft.Set{Name: askedOf(r.name(), n), Key: l.slotNumber(), Data: l.nodeAddr(), Size: plan.DirectSlots}
}

// The names of what a table of slots has,
func slotsOf(id affinityID) string { return slotsPrefix + id.hex() } // slots of nodes that get packets, and these
func ownOf(id affinityID) string   { return "own-" + id.hex() }      // slots of this node

// of what a handover has,
func passOf(handover string) string   { return passPrefix + handover }
func errorOf(handover string) string  { return "error-" + handover }
func secondOf(handover string) string { return secondPrefix + handover }
func askedOf(handover string, n int) string {
	return fmt.Sprintf("%s%d-%s", askedPrefix, n+1, handover)
}

// and of what a pool has.
func localOf(id affinityID) string   { return localPrefix + id.hex() } // endpoints here, and the chain to them
func receiveOf(id affinityID) string { return "receive-" + id.hex() }

const (
	slotsPrefix  = "slots-"
	passPrefix   = "pass-"
	secondPrefix = "second-"
	askedPrefix  = "asked-"
	localPrefix  = "local-"
)

// ingressBase is the name of the base chain at a device: another one has another chain.
func ingressBase(device string) string { return "ingress-" + device }

// directChain is a chain with its rules.
type directChain struct {
	nft.Chain
	rules []nft.Rule
}

func chainOf(c nft.Chain, rules ...nft.Exprs) directChain {
	out := directChain{Chain: c}
	for _, e := range rules {
		out.rules = append(out.rules, nft.Rule{Chain: c.Name, Exprs: e, Tag: e.Tag()})
	}
	return out
}

func plainChain(name string, rules ...nft.Exprs) directChain {
	return chainOf(nft.Chain{Name: name}, rules...)
}

// ingressChains are the chains of the table of family netdev that all pools share, the base chain last.
func ingressChains(d *dataplane.Direct) []directChain {
	var out []directChain
	for _, f := range model.Families {
		out = append(out, layouts[f].ingressChain(), layouts[f].errorChain())
	}
	peer := []nft.Exprs{}
	for _, f := range model.Families {
		if d.Addr(f).IsValid() {
			peer = append(peer, layouts[f].probeRules(d.Addr(f), d.Index)...)
		}
	}
	out = append(out, plainChain(fromPeer, append(peer, anyPacket.Accept())...))
	base := nft.Chain{Name: ingressBase(d.Device), Type: "filter", Hook: unix.NF_NETDEV_INGRESS, Priority: priorityIngress,
		Device: d.Device}
	rules := []nft.Exprs{
		anyPacket.ToOthers().Accept(),
		// From a node: it is not handed on again.
		anyPacket.In(peers, nft.Concat{nft.EtherSource}).Verdict(nft.Goto(fromPeer)),
	}
	for _, f := range model.Families {
		l := layouts[f]
		rules = append(rules, anyPacket.OfFamily(l.nf).Verdict(nft.Goto(l.ingressName())))
	}
	return append(out, chainOf(base, rules...))
}

func (l *layout) ingressName() string { return "in-" + l.nf.String() }
func (l *layout) errorName() string   { return "icmp-" + l.nf.String() }

// ingressChain finds the frontend. Fragments have no ports, and wait until they are put together. What may
// not pass another router is left to the node's own stack, which says so.
func (l *layout) ingressChain() directChain {
	icmp := byte(unix.IPPROTO_ICMP)
	rules := []nft.Exprs{anyPacket.Below(nft.TTL(l.nf), 2).Return()}
	if l.family == model.IPv4 {
		rules = append(rules, anyPacket.Fragment().Return())
	} else {
		icmp = unix.IPPROTO_ICMPV6
	}
	return plainChain(l.ingressName(), append(rules,
		anyPacket.VerdictMap(ingressFrontends(l.family), nft.Concat{l.dest, nft.HeaderProtocol(l.nf), nft.DestPort}),
		anyPacket.HasHeaderProtocol(l.nf, icmp).Verdict(nft.Goto(l.errorName())),
	)...)
}

// errorChain finds the frontend that an ICMP error is about. The packet in it is one of an endpoint's: its source
// is the frontend, and its destination the client.
func (l *layout) errorChain() directChain {
	var rules []nft.Exprs
	types := []byte{3, 11, 12} // destination unreachable, time exceeded, parameter problem
	if l.family == model.IPv6 {
		types = []byte{1, 2, 3, 4} // and packet too big
	} else {
		rules = append(rules, anyPacket.NotEqual(nft.Transport(8, 1), []byte{0x45}).Return()) // with options
	}
	in := l.innerPacket()
	for _, t := range types {
		rules = append(rules, anyPacket.Equal(nft.Transport(0, 1), []byte{t}).
			VerdictMap(ingressErrors(l.family), nft.Concat{in.source, in.protocol, in.sourcePort}))
	}
	return plainChain(l.errorName(), rules...)
}

// inner are properties of the packet in an ICMP error, which is behind eight bytes.
type inner struct{ source, dest, protocol, sourcePort, destPort nft.Value }

func (l *layout) innerPacket() inner {
	if l.family == model.IPv6 {
		return inner{source: nft.Transport(16, 16), dest: nft.Transport(32, 16), protocol: nft.Transport(14, 1),
			sourcePort: nft.Transport(48, 2), destPort: nft.Transport(50, 2)}
	}
	return inner{source: nft.Transport(20, 4), dest: nft.Transport(24, 4), protocol: nft.Transport(17, 1),
		sourcePort: nft.Transport(28, 2), destPort: nft.Transport(30, 2)}
}

// probeRules send probes of other nodes back, and remember those of this node that came back: what they are
// addressed to is who sent them back.
func (l *layout) probeRules(self netip.Addr, device int) []nft.Exprs {
	port := binary.BigEndian.AppendUint16(nil, dataplane.ProbePort)
	probe := anyPacket.OfFamily(l.nf).HasHeaderProtocol(l.nf, unix.IPPROTO_UDP).Equal(nft.DestPort, port)
	sender, kind := nft.Transport(8, self.BitLen()/8), nft.Transport(8+self.BitLen()/8, 1)
	back := nft.Neighbour{Family: l.nf, Device: device, Key: nft.Concat{sender}}
	to, own := probe.Equal(l.dest, self.AsSlice()), probe.Equal(sender, self.AsSlice())
	return []nft.Exprs{
		to.Equal(kind, []byte{dataplane.ForeignProbe}).HandOn(back),
		to.Equal(kind, []byte{dataplane.PlainProbe}).AnswerAs(l.nf).HandOn(back),
		// Something on the way may have replaced the source.
		own.Equal(kind, []byte{dataplane.ForeignProbe}).
			NotEqual(l.source, dataplane.ForeignSource(l.family).AsSlice()).Drop(),
		own.Record(proofs(l.family), nft.Concat{l.dest, kind}, uint32(dataplane.ProofTimeout.Seconds())).Drop(),
	}
}

// baseChains are the base chains of the table of an IP family.
func (l *layout) directBase(d *dataplane.Direct) []directChain {
	frontend, port := nft.Concat{l.dest, nft.Protocol, nft.DestPort}, nft.Concat{nft.Protocol, nft.DestPort}
	toNode := anyPacket.In(nodeIPs, nft.Concat{l.dest})
	return []directChain{
		chainOf(nft.Chain{Name: secondChance, Type: "filter", Hook: unix.NF_INET_PRE_ROUTING, Priority: prioritySecondChance},
			anyPacket.NotAt(d.Index).Accept(),
			anyPacket.InState(nft.Established).Accept(),
			anyPacket.VerdictMap(second, frontend),
			toNode.VerdictMap(secondPorts, port),
		),
		chainOf(nft.Chain{Name: receive, Type: "nat", Hook: unix.NF_INET_PRE_ROUTING, Priority: priorityReceive},
			anyPacket.NotAt(d.Index).Accept(),
			anyPacket.VerdictMap(received, frontend),
			toNode.VerdictMap(recvPorts, port),
		),
	}
}

// slot is that of a client, of whose address alone or not.
func (l *layout) slot(addr, port nft.Value, byAddress bool) nft.Concat {
	of := nft.Concat{addr}
	if !byAddress {
		of = append(of, port)
	}
	return nft.Concat{nft.HashOf(of, plan.DirectSlots, plan.DirectSeed)}
}

// handoverRules are the rules of a handover.
type handoverRules struct {
	*layout
	*handover
	device int
}

// at is the node that a map has for a slot.
func (r *handoverRules) at(set string, slot nft.Concat) nft.Neighbour {
	return nft.Neighbour{Family: r.nf, Device: r.device, Map: set, Key: slot}
}

// ingress are the chains of the table of family netdev.
func (r *handoverRules) ingress() []directChain {
	in, slots := r.innerPacket(), slotsOf(r.table.id)
	return []directChain{
		plainChain(passOf(r.name()), anyPacket.HandOn(r.at(slots, r.slot(r.source, nft.SourcePort, r.byAddress)))),
		plainChain(errorOf(r.name()), anyPacket.HandOn(r.at(slots, r.slot(in.dest, in.destPort, r.byAddress)))),
	}
}

// secondChance hands packets of connections that are not known here to the nodes that may know them: to the one that
// has the slot, if the node that handed them on does not know that yet, and to those that had it before;
// or back, if there is none: the sender may have served the connection itself while it could not hand it on.
func (r *handoverRules) secondChance() []nft.Exprs {
	key, ttl, slot := nft.Concat{nft.EtherSource}, nft.TTL(r.nf), r.slot(r.source, nft.SourcePort, r.byAddress)
	owner := r.at(slotsOf(r.table.id), slot)
	var rules []nft.Exprs
	if !r.begins {
		rules = append(rules, anyPacket.NotIn(peers, key).AtLeast(ttl, 2).Divert(owner, 0))
	}
	if r.protocol != model.TCP {
		rules = append(rules, anyPacket.Below(ttl, askedTTL+1).Accept())
		switch {
		case r.begins:
		case r.formerly == nil:
			rules = append(rules, anyPacket.Divert(owner, secondTTL))
		case len(r.asked) > 0:
			rules = append(rules, anyPacket.Divert(r.at(askedOf(r.name(), 0), slot), secondTTL))
		}
		return rules
	}
	handed := anyPacket.In(peers, key)
	sender := nft.Neighbour{Family: r.nf, Device: r.device, Map: peerAddrs, Key: key}
	rules = append(rules,
		anyPacket.HasTCPFlags(nft.SYN|nft.ACK, nft.SYN).Accept(),
		handed.Equal(ttl, []byte{askedTTL}).Drop(),
		// Nobody knows it. The node's own stack would send it anywhere.
		handed.Below(ttl, askedTTL).InState(nft.Invalid).Drop(),
		anyPacket.Below(ttl, askedTTL+1).Accept(),
		// Only the end of a connection is invalid if it is not known. Others belong to one that is.
		anyPacket.InState(nft.Invalid).HasTCPFlags(nft.FIN|nft.SYN|nft.RST, 0).Accept(),
	)
	if !r.begins {
		rules = append(rules, r.askAll(owner, slot)...)
	}
	return append(rules, anyPacket.Divert(sender, secondTTL))
}

// askAll hands a packet to all nodes that may know its connection, at most three: to the owner, and to others. One that
// is the only one gets it with another TTL.
func (r *handoverRules) askAll(owner nft.Neighbour, slot nft.Concat) (rules []nft.Exprs) {
	other := func(n int) nft.Neighbour { return r.at(askedOf(r.name(), n), slot) }
	for n := len(r.asked) - 1; n > 0; n-- {
		rules = append(rules, anyPacket.Copy(other(n), askedTTL))
	}
	if len(r.asked) > 0 {
		rules = append(rules, anyPacket.Known(owner).Copy(other(0), askedTTL).Divert(owner, askedTTL))
	}
	rules = append(rules, anyPacket.Divert(owner, secondTTL))
	if len(r.asked) > 1 {
		rules = append(rules, anyPacket.Known(other(1)).Divert(other(0), askedTTL))
	}
	if len(r.asked) > 0 {
		rules = append(rules, anyPacket.Divert(other(0), secondTTL))
	}
	return rules
}

// poolRules are the rules of a pool.
type poolRules struct {
	*layout
	id        affinityID
	protocol  model.Protocol
	byAddress bool // the slot follows from the client's address alone
	own       affinityID
	// locals is how many slots the endpoints have that connections are led to here, chosen
	// as in choice, and mark the bit of the packet mark that has their source replaced; 0 for none.
	locals int
	choice choice
	mark   uint32
}

// chains lead connections to the endpoints here.
func (r *poolRules) chains() []directChain {
	receive := []nft.Exprs{anyPacket.In(handedBy, nft.Concat{nft.EtherSource}).Verdict(nft.Goto(localOf(r.id)))}
	if r.mark == 0 {
		slot := r.slot(r.source, nft.SourcePort, r.byAddress)
		receive = append(receive, anyPacket.In(ownOf(r.own), slot).Verdict(nft.Goto(localOf(r.id))))
	}
	return []directChain{plainChain(localOf(r.id), r.toLocal()), plainChain(receiveOf(r.id), receive...)}
}

// toLocal leads connections to the endpoints here.
func (r *poolRules) toLocal() nft.Exprs {
	number := nft.Random(r.locals)
	switch r.choice {
	case inTurn:
		number = nft.Incremental(r.locals)
	case byClient:
		number = nft.Hash(r.source, r.locals, plan.HashSeed)
	}
	lead := anyPacket.HasProtocol(byte(r.protocol))
	if r.mark != 0 {
		lead = lead.SetMark(r.mark)
	}
	return lead.DNATMap(r.nf, localOf(r.id), nft.Concat{number})
}
