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

// poolSets are the sets of a pool: in the table of family netdev the first one alone.
func (l *layout) poolSets(id affinityID) []*nft.Set {
	number := nft.Type{Parts: nft.Concat{nft.Random(plan.DirectSlots)}, Typeof: true}
	addr := nft.Type{Parts: nft.Concat{l.dest}, Typeof: true}
	return []*nft.Set{
		{Name: slotsOf(id), Key: number, Data: addr, Size: plan.DirectSlots},
		{Name: askedOf(id, 0), Key: number, Data: addr, Size: plan.DirectSlots},
		{Name: askedOf(id, 1), Key: number, Data: addr, Size: plan.DirectSlots},
		{Name: askedOf(id, 2), Key: number, Data: addr, Size: plan.DirectSlots},
		{Name: ownOf(id), Key: number, Size: plan.DirectSlots},
		{Name: localOf(id), Key: number, Data: nft.Type{Parts: nft.Concat{l.dest, nft.DestPort}, Typeof: true}},
	}
}

// The names of what a pool has.
func slotsOf(id affinityID) string   { return slotsPrefix + id.hex() } // slots of nodes that get packets, and these
func ownOf(id affinityID) string     { return "own-" + id.hex() }      // slots of this node
func localOf(id affinityID) string   { return "local-" + id.hex() }    // endpoints here, and the chain to them
func passOf(id affinityID) string    { return passPrefix + id.hex() }
func errorOf(id affinityID) string   { return "error-" + id.hex() }
func secondOf(id affinityID) string  { return secondPrefix + id.hex() }
func receiveOf(id affinityID) string { return "receive-" + id.hex() }

const (
	slotsPrefix  = "slots-"
	passPrefix   = "pass-"
	secondPrefix = "second-"
)

// askedOf is the map of slots with the nodes that are asked for connections that are not known here.
func askedOf(id affinityID, n int) string { return fmt.Sprintf("asked-%d-%s", n+1, id.hex()) }

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

// slotRules are what the rules of a pool depend on.
type poolRules struct {
	*layout
	id        affinityID
	protocol  model.Protocol
	byAddress bool // the slot follows from the client's address alone
	device    int
	// locals is how many slots the endpoints have that connections are led to here, chosen
	// as in choice, and mark the bit of the packet mark that has their source replaced; 0 for none.
	locals int
	choice choice
	mark   uint32
}

// slot is that of a client.
func (r *poolRules) slot(addr, port nft.Value) nft.Concat {
	of := nft.Concat{addr}
	if !r.byAddress {
		of = append(of, port)
	}
	return nft.Concat{nft.HashOf(of, plan.DirectSlots, plan.DirectSeed)}
}

// ingress are the pool's chains of the table of family netdev.
func (r *poolRules) ingress() []directChain {
	handTo := func(slot nft.Concat) nft.Exprs {
		return anyPacket.HandOn(nft.Neighbour{Family: r.nf, Device: r.device, Map: slotsOf(r.id), Key: slot})
	}
	in := r.innerPacket()
	return []directChain{
		plainChain(passOf(r.id), handTo(r.slot(r.source, nft.SourcePort))),
		plainChain(errorOf(r.id), handTo(r.slot(in.dest, in.destPort))),
	}
}

// chains are those of the table of the IP family.
func (r *poolRules) chains() []directChain {
	slot := r.slot(r.source, nft.SourcePort)
	toOwner := nft.Neighbour{Family: r.nf, Device: r.device, Map: slotsOf(r.id), Key: slot}
	handed := anyPacket.In(handedBy, nft.Concat{nft.EtherSource})
	receive := []nft.Exprs{handed.Verdict(nft.Goto(localOf(r.id)))}
	if r.mark == 0 {
		receive = append(receive, anyPacket.In(ownOf(r.id), slot).Verdict(nft.Goto(localOf(r.id))))
	}
	if r.locals == 0 {
		receive = nil
	}
	return []directChain{
		plainChain(secondOf(r.id), r.secondChance(toOwner)...),
		plainChain(localOf(r.id), r.toLocal()...),
		plainChain(receiveOf(r.id), receive...),
	}
}

// secondChance hands packets of connections that are not known here to the nodes that may know them: to the one that
// has the slot, if the node that handed them on does not know that yet, and to those that had it before;
// or back, if there is none: the sender may have served the connection itself while it could not hand it on.
func (r *poolRules) secondChance(toOwner nft.Neighbour) []nft.Exprs {
	key, ttl := nft.Concat{nft.EtherSource}, nft.TTL(r.nf)
	notHanded, handed := anyPacket.NotIn(peers, key), anyPacket.In(peers, key)
	asked := func(n int) nft.Neighbour {
		return nft.Neighbour{Family: r.nf, Device: r.device, Map: askedOf(r.id, n), Key: toOwner.Key}
	}
	rules := []nft.Exprs{notHanded.AtLeast(ttl, 2).Divert(toOwner, 0)}
	if r.protocol != model.TCP {
		return append(rules, anyPacket.Below(ttl, askedTTL+1).Accept(), anyPacket.Divert(asked(0), secondTTL))
	}
	sender := nft.Neighbour{Family: r.nf, Device: r.device, Map: peerAddrs, Key: key}
	return append(rules,
		anyPacket.HasTCPFlags(nft.SYN|nft.ACK, nft.SYN).Accept(),
		handed.Equal(ttl, []byte{askedTTL}).Drop(),
		// Nobody knows it. The node's own stack would send it anywhere.
		handed.Below(ttl, askedTTL).InState(nft.Invalid).Drop(),
		anyPacket.Below(ttl, askedTTL+1).Accept(),
		// Only the end of a connection is invalid if it is not known. Others belong to one that is.
		anyPacket.InState(nft.Invalid).HasTCPFlags(nft.FIN|nft.SYN|nft.RST, 0).Accept(),
		anyPacket.Copy(asked(2), askedTTL),
		anyPacket.Copy(asked(1), askedTTL).Divert(asked(0), askedTTL),
		anyPacket.Divert(asked(0), secondTTL),
		anyPacket.Divert(sender, secondTTL),
	)
}

// toLocal leads connections to the endpoints here.
func (r *poolRules) toLocal() []nft.Exprs {
	if r.locals == 0 {
		return nil
	}
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
	return []nft.Exprs{lead.DNATMap(r.nf, localOf(r.id), nft.Concat{number})}
}
