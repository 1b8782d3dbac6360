package nftables

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/nft"
	"sluice/internal/plan"
)

// rules are the chain's rules in order. Each carries a tag made of its content,
// by which a later process sees whether it is still the rule it wants.
func (c chain) rules(l *layout, s *plan.Settings) []nft.Rule {
	w := &ruleWriter{layout: l, settings: s, chain: c.name()}
	switch c.kind {
	case prerouting, output:
		w.add(goOn().jump(chain{kind: dispatch}))
	case dispatch:
		w.dispatch()
	case postrouting:
		w.add(goOn().markIs(s.MasqueradeMark).goTo(chain{kind: masqueraded}))
		w.add(goOn().attrs(func(a nft.Attrs) nft.Attrs {
			a = w.sourceAddr(a, 0)
			a = w.destAddr(a, nft.Register(0).After(l.addrLen))
			return a.InSet(hairpin, 0).Masquerade()
		}))
	case masqueraded:
		w.add(goOn().changeMark(^uint32(0), s.MasqueradeMark))
		w.add(goOn().attrs(nft.Attrs.Masquerade))
	case mark:
		w.add(goOn().changeMark(^s.MasqueradeMark, s.MasqueradeMark))
	case markOffCluster:
		w.eachPodMatch(func(match expr) { w.add(match.verdict(nft.ReturnCode)) })
		w.add(goOn().goTo(chain{kind: mark}))
	case reject:
		w.add(goOn().protocolIs(model.TCP).attrs(nft.Attrs.RejectTCP))
		w.add(goOn().attrs(func(a nft.Attrs) nft.Attrs { return a.RejectPort(l.nf) }))
	case forward, filterOutput:
		w.add(goOn().isNew().jump(chain{kind: unknown}))
	case unknown:
		w.unknown()
	case entry:
		w.entry(c)
	case balance:
		w.balance(c)
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
	rules    []nft.Rule
}

func (w *ruleWriter) add(e expr)         { w.rule(e, false) }
func (w *ruleWriter) addForPorts(e expr) { w.rule(e, true) }
func (w *ruleWriter) rule(e expr, p bool) {
	h := fnv.New64a()
	h.Write(e)
	w.rules = append(w.rules, nft.Rule{Chain: w.chain, Exprs: nft.Attrs(e), Tag: h.Sum64(), Protocols: p})
}

// expr is the beginning of a rule to which more is added.
type expr nft.Attrs

func goOn() expr { return nil }

func (e expr) attrs(f func(nft.Attrs) nft.Attrs) expr { return expr(f(nft.Attrs(e))) }

func (e expr) verdict(code int32) expr {
	return e.attrs(func(a nft.Attrs) nft.Attrs { return a.Verdict(nft.Verdict{Code: code}) })
}

func (e expr) goTo(c chain) expr {
	if c.kind == drop {
		return e.verdict(nft.DropCode)
	}
	return e.attrs(func(a nft.Attrs) nft.Attrs {
		return a.Verdict(nft.Verdict{Code: nft.GotoCode, Chain: c.name()})
	})
}

func (e expr) jump(c chain) expr {
	return e.attrs(func(a nft.Attrs) nft.Attrs {
		return a.Verdict(nft.Verdict{Code: nft.JumpCode, Chain: c.name()})
	})
}

// word is a number as the kernel has it in a register.
func word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func (e expr) anyBit(load func(nft.Attrs) nft.Attrs, bits uint32) expr {
	return e.attrs(load).attrs(func(a nft.Attrs) nft.Attrs {
		return a.Bitwise(0, word(bits), word(0)).NotEqual(0, word(0))
	})
}

func (e expr) markIs(bit uint32) expr {
	return e.anyBit(func(a nft.Attrs) nft.Attrs { return a.Meta(0, unix.NFT_META_MARK) }, bit)
}

func (e expr) changeMark(mask, xor uint32) expr {
	return e.attrs(func(a nft.Attrs) nft.Attrs {
		a = a.Meta(0, unix.NFT_META_MARK).Bitwise(0, word(mask), word(xor))
		return a.SetMeta(unix.NFT_META_MARK, 0)
	})
}

const (
	ctStateNew   = 1 << 3 // NF_CT_STATE_BIT(IP_CT_NEW)
	ctStatusDNAT = 1 << 5 // IPS_DST_NAT
)

func (e expr) isNew() expr {
	return e.anyBit(func(a nft.Attrs) nft.Attrs { return a.Conntrack(0, unix.NFT_CT_STATE) }, ctStateNew)
}

func (e expr) isTranslated() expr {
	return e.anyBit(func(a nft.Attrs) nft.Attrs { return a.Conntrack(0, unix.NFT_CT_STATUS) }, ctStatusDNAT)
}

func (e expr) protocolIs(p model.Protocol) expr {
	return e.attrs(func(a nft.Attrs) nft.Attrs {
		return a.Meta(0, unix.NFT_META_L4PROTO).Equal(0, []byte{byte(p)})
	})
}

// sourceIsLocal matches packets from an address of this node.
func (e expr) sourceIsLocal() expr {
	return e.attrs(func(a nft.Attrs) nft.Attrs {
		return a.SourceType(0).Equal(0, word(unix.RTN_LOCAL))
	})
}

func (w *ruleWriter) sourceAddr(a nft.Attrs, to nft.Register) nft.Attrs {
	return a.Network(to, w.sourceAt, uint32(w.addrLen))
}

func (w *ruleWriter) destAddr(a nft.Attrs, to nft.Register) nft.Attrs {
	return a.Network(to, w.destAt, uint32(w.addrLen))
}

// inPrefix matches an address that load puts into register 0.
func (w *ruleWriter) inPrefix(load func(nft.Attrs, nft.Register) nft.Attrs, p netip.Prefix) expr {
	return goOn().attrs(func(a nft.Attrs) nft.Attrs {
		a = load(a, 0)
		if p.Bits() < w.addrLen*8 {
			a = a.Bitwise(0, maskBytes(p), make([]byte, w.addrLen))
		}
		return a.Equal(0, p.Masked().Addr().AsSlice())
	})
}

func maskBytes(p netip.Prefix) []byte {
	b := make([]byte, len(p.Addr().AsSlice()))
	for i := range p.Bits() {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return b
}

// eachPodMatch calls f with a match for every way to be a pod.
func (w *ruleWriter) eachPodMatch(f func(expr)) {
	d := w.settings.Detector(w.family)
	for _, p := range d.Sources {
		f(w.inPrefix(w.sourceAddr, p))
	}
	iface := func(name []byte) {
		f(goOn().attrs(func(a nft.Attrs) nft.Attrs {
			return a.Meta(0, unix.NFT_META_IIFNAME).Equal(0, name)
		}))
	}
	if d.Interface != "" {
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, d.Interface)
		iface(name)
	}
	if d.InterfacePrefix != "" {
		iface([]byte(d.InterfacePrefix))
	}
}

// frontendKey loads the key of the services map, or of the nodeports map, and
// returns the register behind it.
func (w *ruleWriter) frontendKey(a nft.Attrs, at nft.Register, nodePort bool) (nft.Attrs, nft.Register) {
	if !nodePort {
		a = w.destAddr(a, at)
		at = at.After(w.addrLen)
	}
	a = a.Meta(at, unix.NFT_META_L4PROTO)
	a = a.Transport(at+1, 2, 2)
	return a, at + 2
}

// lookUp goes on with the verdict that a map has for the packet's frontend.
func (w *ruleWriter) lookUp(e expr, set string, nodePort bool) expr {
	return e.attrs(func(a nft.Attrs) nft.Attrs {
		a, _ = w.frontendKey(a, 0, nodePort)
		return a.VerdictMap(set, 0)
	})
}

func (w *ruleWriter) dispatch() {
	w.add(w.lookUp(goOn(), services, false))
	toNode := goOn().attrs(func(a nft.Attrs) nft.Attrs { return w.destAddr(a, 0).InSet(nodePortIPs, 0) })
	w.add(w.lookUp(toNode, nodePorts, true))
}

// unknown refuses ports of ClusterIPs that no frontend has, and drops what goes
// to addresses that no Service has.
func (w *ruleWriter) unknown() {
	w.add(goOn().attrs(func(a nft.Attrs) nft.Attrs { return w.destAddr(a, 0).InSet(clusterIPs, 0) }).
		goTo(chain{kind: reject}))
	for _, p := range w.settings.ServiceCIDRs {
		if model.FamilyOf(p.Addr()) == w.family {
			w.add(w.inPrefix(w.destAddr, p).verdict(nft.DropCode))
		}
	}
}

func (w *ruleWriter) entry(c chain) {
	if c.filtered {
		w.add(goOn().attrs(func(a nft.Attrs) nft.Attrs {
			a, at := w.frontendKey(a, 0, c.nodePort)
			return w.sourceAddr(a, at).NotInSet(sources, 0)
		}).verdict(nft.DropCode))
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
	w.add(w.lookUp(goOn(), set, c.nodePort))
}

// poolSets are the maps of a pool: its endpoints and its clients' affinity.
func (c chain) poolSets() (endpointMap, affinityMap string) {
	switch {
	case c.nodePort && c.local:
		return nodePortLocal, localAffinity
	case c.nodePort:
		return nodePortEndpoints, affinity
	case c.local:
		return localEndpoints, localAffinity
	}
	return endpoints, affinity
}

func (w *ruleWriter) balance(c chain) {
	endpointMap, affinityMap := c.poolSets()
	port := nft.Register(0).After(w.addrLen)
	if c.sticky {
		w.addForPorts(goOn().attrs(func(a nft.Attrs) nft.Attrs {
			a = w.sourceAddr(a, 0)
			a, _ = w.frontendKey(a, nft.Register(0).After(w.addrLen), false)
			return a.Map(affinityMap, 0, 0).DNAT(w.nf, 0, port)
		}))
		c.sticky = false
		w.add(goOn().goTo(c))
		return
	}
	w.addForPorts(goOn().attrs(func(a nft.Attrs) nft.Attrs {
		a, at := w.frontendKey(a, 0, c.nodePort)
		return a.Random(at, uint32(c.size)).Map(endpointMap, 0, 0).DNAT(w.nf, 0, port)
	}))
}

var protocols = []model.Protocol{model.TCP, model.UDP, model.SCTP}

// tupleAddr loads an address of the connection's tuple.
func (w *ruleWriter) tupleAddr(a nft.Attrs, to nft.Register, source bool, direction uint8) nft.Attrs {
	key := uint32(unix.NFT_CT_SRC_IP)
	switch {
	case w.family == model.IPv6 && source:
		key = unix.NFT_CT_SRC_IP6
	case w.family == model.IPv6:
		key = unix.NFT_CT_DST_IP6
	case !source:
		key = unix.NFT_CT_DST_IP
	}
	return a.ConntrackTuple(to, key, direction)
}

// remembering finds the frontend that a connection came by. There is a rule for
// each protocol because nft 1.0.6 cannot load a listing with ports of a
// connection's tuple otherwise.
func (w *ruleWriter) remembering() {
	for _, p := range protocols {
		w.add(goOn().protocolIs(p).attrs(func(a nft.Attrs) nft.Attrs {
			at := nft.Register(0).After(w.addrLen)
			a = w.tupleAddr(a, 0, false, nft.Original)
			a = a.Meta(at, unix.NFT_META_L4PROTO)
			a = a.ConntrackTuple(at+1, unix.NFT_CT_PROTO_DST, nft.Original)
			return a.VerdictMap(sticky, 0)
		}))
	}
	for _, p := range protocols {
		w.add(goOn().protocolIs(p).attrs(func(a nft.Attrs) nft.Attrs {
			a = w.tupleAddr(a, 0, false, nft.Original).InSet(nodePortIPs, 0)
			a = a.Meta(0, unix.NFT_META_L4PROTO)
			a = a.ConntrackTuple(1, unix.NFT_CT_PROTO_DST, nft.Original)
			return a.VerdictMap(nodePortSticky, 0)
		}))
	}
}

// remember notes which endpoint the client got. The endpoint is taken from the
// reply's tuple: nft 1.0.6 would drop the match of the protocol from its listing
// if the rule loaded the port from the packet.
func (w *ruleWriter) remember(c chain) {
	into := affinity
	if c.split {
		into = localAffinity
		inside := chain{kind: remember, seconds: c.seconds}
		w.eachPodMatch(func(match expr) { w.add(match.goTo(inside)) })
		w.add(goOn().sourceIsLocal().goTo(inside))
	}
	for _, p := range protocols {
		w.add(goOn().protocolIs(p).isNew().attrs(func(a nft.Attrs) nft.Attrs {
			dest := nft.Register(0).After(w.addrLen)
			protocol := dest.After(w.addrLen)
			data := protocol + 2
			a = w.tupleAddr(a, 0, true, nft.Original)
			a = w.tupleAddr(a, dest, false, nft.Original)
			a = a.Meta(protocol, unix.NFT_META_L4PROTO)
			a = a.ConntrackTuple(protocol+1, unix.NFT_CT_PROTO_DST, nft.Original)
			a = w.tupleAddr(a, data, true, nft.Reply)
			a = a.ConntrackTuple(data.After(w.addrLen), unix.NFT_CT_PROTO_SRC, nft.Reply)
			return a.UpdateMap(into, 0, data, c.seconds)
		}))
	}
}
