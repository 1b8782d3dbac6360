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
	To     Key
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
	// Relayed says that the proxy accepts the connection itself and opens
	// another one to the endpoint: a node port on a loopback address.
	Relayed bool
	// Depends says that whether the client may connect depends on its source
	// address, which is not known. The decision is then for a client that may.
	Depends bool
}

// Decide returns what happens to a packet, and why.
func (d *Desired) Decide(p Packet) Decision {
	out := Decision{Packet: p}
	if !d.Settings.Serves(p.To.Family()) {
		out.Verdict, out.Cause = Pass, NoIPv6
		return out
	}
	out.Frontend, _ = d.Lookup(p.To, func(netip.Addr) bool { return p.ToNode })
	if out.Frontend == nil && p.From == NodeClient && d.Settings.relays(p.To) {
		out.Frontend = d.Frontends[NodePortKey(p.To.Family(), p.To.Port, p.To.Protocol)]
		out.Relayed = out.Frontend != nil
	}
	if out.Frontend != nil {
		out.connect(d)
	} else {
		out.Verdict, out.Cause = d.miss(p)
	}
	return out
}

// miss decides on packets that are addressed to no frontend.
func (d *Desired) miss(p Packet) (Verdict, Cause) {
	to := p.To.Addr
	if d.Settings.NodePortsOnly {
		return Pass, NodePortsOnly
	}
	if _, used := d.ClusterIPs[to]; used || d.Routed[to] > 0 && !p.ToNode {
		return Reject, NoSuchPort
	}
	if anyContains(d.Settings.ServiceCIDRs, to) {
		return Drop, UnusedAddress
	}
	return Pass, NotAService
}

// relays reports whether the proxy itself serves node ports at a loopback
// address.
func (s *Settings) relays(at Key) bool {
	return Relayable(at.Protocol) && slices.Contains(s.LoopbackIPs, at.Addr)
}

// Relayable reports whether node ports of a protocol are relayed at
// Settings.LoopbackIPs.
func Relayable(p model.Protocol) bool { return p != model.SCTP }

// RelayTries is how many endpoints are tried for a connection that the proxy relays, if the
// first ones do not take it.
const RelayTries = 4

func (c *Decision) connect(d *Desired) {
	f := c.Frontend
	c.Route = &f.Route
	if f.Outside != nil && c.Packet.From == OutsideClient {
		c.Route = f.Outside
	}
	admitted, depends := c.admits(d)
	c.Depends = depends
	c.Verdict, c.Cause = c.Route.Verdict(), c.Route.Empty.Cause
	switch {
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
		return anyContains(f.Sources, source), false
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
// client's, and why. An invalid endpoint stands for any endpoint other than the
// client itself.
func (c *Decision) Masquerade(endpoint netip.Addr) (yes bool, why MasqueradeCause) {
	if c.Frontend == nil {
		return false, 0
	}
	if c.Relayed {
		return true, ProxyConnects
	}
	yes, why = c.Frontend.masquerades(c.Packet.From)
	if !yes && endpoint.IsValid() && c.Packet.Source == endpoint {
		return true, ClientIsEndpoint
	}
	return yes, why
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
