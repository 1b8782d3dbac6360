package plan

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/model"
)

// Client is the kind of client that opens a connection.
type Client uint8

// The clients.
const (
	OutsideClient Client = iota // neither a pod nor this node
	PodClient
	NodeClient
)

func (c Client) String() string { return [...]string{"outside", "pod", "node"}[c] }

// Client returns the kind of client that sends from an address, which may be
// local, through an interface. As in the kernel, the detector decides first.
func (s *Settings) Client(source netip.Addr, in string, local bool) Client {
	d := s.Detector(model.FamilyOf(source))
	switch {
	case anyContains(d.Sources, source),
		d.Interface != "" && in == d.Interface,
		d.InterfacePrefix != "" && strings.HasPrefix(in, d.InterfacePrefix):
		return PodClient
	case local:
		return NodeClient
	}
	return OutsideClient
}

// Packet is the first packet of a connection.
type Packet struct {
	From   Client
	Source netip.Addr // invalid for any client of that kind
	// SourcePort is its port, 0 for any. Only direct return depends on it.
	SourcePort uint16
	To         Key
	// ToNode says that the destination is local according to the routing table.
	ToNode bool
}

// Decision is what happens to a packet, and why.
type Decision struct {
	Packet  Packet
	Verdict Verdict
	Cause   Cause
	// Frontend is the frontend that the packet is addressed to, and Route the
	// route of it that the packet takes; nil for none.
	Frontend *Frontend
	Route    *Route
	// Loopback says that the packet is for a node port on a loopback address, where the
	// proxy accepts the connection itself and opens another one to the endpoint.
	Loopback bool
	// Depends says that whether the client may connect depends on its source
	// address, which is not known. The decision is then for a client that may.
	Depends bool

	settings Settings
}

// Decide returns what happens to a packet, and why.
func (d *Desired) Decide(p Packet) Decision {
	out := Decision{Packet: p, settings: d.Settings}
	if !d.Settings.Serves(p.To.Family()) {
		out.Verdict, out.Cause = Pass, NoIPv6
		return out
	}
	out.Frontend, _ = d.Lookup(p.To, func(netip.Addr) bool { return p.ToNode })
	if out.Frontend == nil && p.From == NodeClient && d.Settings.atLoopback(p.To) {
		out.Frontend = d.Frontends[NodePortKey(p.To.Family(), p.To.Port, p.To.Protocol)]
		out.Loopback = out.Frontend != nil
		if out.Loopback && !out.Packet.Source.IsValid() {
			out.Packet.Source = p.To.Addr
		}
	}
	if out.Frontend != nil {
		out.connect(d)
		if out.Verdict != Pass {
			return out
		}
	}
	if verdict, cause := d.miss(p); out.Frontend == nil || verdict != Pass {
		out.Verdict, out.Cause = verdict, cause
	}
	return out
}

// miss decides on packets that are addressed to no frontend.
func (d *Desired) miss(p Packet) (Verdict, Cause) {
	to := p.To.Addr
	if d.Settings.NodePortsOnly {
		return Pass, NodePortsOnly
	}
	if p.From == NodeClient && to.IsLoopback() && d.Settings.UnservedLoopback == UnservedReject {
		if _, found := d.Frontends[NodePortKey(p.To.Family(), p.To.Port, p.To.Protocol)]; found {
			return Reject, NoSuchPort
		}
	}
	if _, used := d.ClusterIPs[to]; used || d.ExclusiveIPs[to] > 0 && !p.ToNode {
		return Reject, NoSuchPort
	}
	if anyContains(d.Settings.ServiceCIDRs, to) {
		return Drop, UnusedAddress
	}
	return Pass, NotAService
}

// atLoopback reports whether the proxy itself serves node ports at a loopback
// address.
func (s *Settings) atLoopback(at Key) bool {
	return ProxyForwards(at.Protocol) && slices.Contains(s.LoopbackIPs, at.Addr)
}

// ServedAtLoopback reports whether the node port of a key is served at a loopback address of its family.
func (s *Settings) ServedAtLoopback(k Key) bool {
	return ProxyForwards(k.Protocol) && len(s.LoopbackAddrs(k.Family())) > 0
}

// LoopbackRoute is where connections to a node port at a loopback address go. Without an endpoint nobody
// listens there.
func (s *Settings) LoopbackRoute(f *Frontend) Route {
	r := f.Route
	if s.LoopbackLocal && f.Outside != nil {
		r = *f.Outside
	}
	if len(r.Endpoints) == 0 {
		r.Empty.Verdict = Reject
	}
	return r
}

// ProxyForwards reports whether the proxy itself can forward connections of a protocol.
func ProxyForwards(p model.Protocol) bool { return p != model.SCTP }

// ProxyTries is how many endpoints are tried for a connection that the proxy forwards, if the
// first ones do not take it.
const ProxyTries = 4

func (c *Decision) connect(d *Desired) {
	f := c.Frontend
	c.Route = &f.Route
	if f.Outside != nil && c.Packet.From == OutsideClient {
		c.Route = f.Outside
	}
	if c.Loopback {
		route := d.Settings.LoopbackRoute(f)
		c.Route = &route
	}
	admitted, depends := c.admits(d)
	c.Depends = depends
	c.Verdict, c.Cause = c.Route.Verdict(), c.Route.Empty.Cause
	switch {
	case !admitted && c.Loopback: // nobody listens
		c.Verdict, c.Cause = Reject, SourceRanges
	case !admitted:
		c.Verdict, c.Cause = Drop, SourceRanges
	case c.Verdict == Forward:
		c.Cause = HasEndpoint
	}
}

// admits reports whether the frontend admits the source, and whether that
// depends on an unknown source address.
func (c *Decision) admits(d *Desired) (yes, depends bool) {
	f, source := c.Frontend, c.Packet.Source
	switch {
	case !f.Filtered:
		return true, false
	case source.IsValid():
		return f.Admits(source), false
	case len(f.Sources) == 0:
		return false, false
	}
	pods := d.Settings.Detector(f.Family()).Sources
	if c.Packet.From != PodClient || len(pods) == 0 {
		return true, true
	}
	within, overlap := true, false
	for _, p := range pods {
		within = within && slices.ContainsFunc(f.Sources, func(s netip.Prefix) bool { return s.Bits() <= p.Bits() && s.Contains(p.Addr()) })
		overlap = overlap || slices.ContainsFunc(f.Sources, p.Overlaps)
	}
	return overlap, overlap && !within
}

// Masquerade reports whether an endpoint sees the node's address instead of the
// client's, and why; it does not know if the cause is MechanismDecides. An invalid endpoint stands for any
// endpoint other than the client itself.
func (c *Decision) Masquerade(endpoint netip.Addr) (yes bool, why MasqueradeCause) {
	if c.Frontend == nil {
		return false, 0
	}
	if c.Loopback {
		return true, ProxyConnects
	}
	if way, direct := c.Way(); direct {
		return way.Ordinary, directCause(way)
	}
	yes, why = c.Frontend.masquerades(c.Packet.From)
	if c.Frontend.ownSource() {
		return yes, why
	}
	switch source := c.Packet.Source; {
	case !endpoint.IsValid() || c.settings.NodePortsOnly || c.Packet.From == NodeClient && !source.IsValid():
	case c.Frontend.ProxyConnects:
		i := slices.IndexFunc(c.Route.Endpoints, func(e Endpoint) bool { return e.Addr() == endpoint })
		if i >= 0 {
			return c.settings.ProxyMasquerades(source, c.Route.Endpoints[i], yes, why)
		}
	case !yes && source == endpoint:
		return true, ClientIsEndpoint
	}
	return yes, why
}

// ProxyMasquerades is Decision.Masquerade for a connection that the proxy itself opens for a client.
// Asked says that the frontend masquerades it, and cause is why or why not.
//
// An endpoint may see the client's address if its replies come through this node: it is on it, or
// the client is the node itself or a pod of it. Of endpoints elsewhere only pods are known to reach
// pods by their own address; programs of the cluster's network let others see the node's. What is
// masqueraded keeps its source as well if it does not leave the node, as in other modes. An endpoint
// that connects to itself would answer itself.
func (s *Settings) ProxyMasquerades(client netip.Addr, to Endpoint, asked bool, cause MasqueradeCause) (
	yes bool, why MasqueradeCause) {
	switch {
	case client == to.Addr():
		return true, ClientIsEndpoint
	case slices.Contains(s.HostIPs, to.Addr()):
		return false, EndpointIsNode
	case asked || to.Local || slices.Contains(s.HostIPs, client) || anyContains(s.PodCIDRs, to.Addr()):
		return asked, cause
	}
	return true, ProxyConnects
}

// ownSource reports whether the mechanism has its own way with source addresses, and is only asked to keep
// them or not.
func (f *Frontend) ownSource() bool {
	return f.Masquerade == MasqueradeUnknown || f.Masquerade == MasqueradeNever && f.MasqueradeCause == ExternalPolicyLocal
}

func (f *Frontend) masquerades(from Client) (bool, MasqueradeCause) {
	switch {
	case f.Masquerade == MasqueradeOffCluster && from == PodClient:
		return false, ClientIsPod
	case f.Masquerade == MasqueradeNode && from == NodeClient:
		return true, ClientIsNode
	}
	return f.Masquerade == MasqueradeAlways || f.Masquerade == MasqueradeOffCluster, f.MasqueradeCause
}
