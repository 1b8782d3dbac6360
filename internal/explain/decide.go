package explain

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// Talker is who sends a packet.
type Talker uint8

// Those who send packets.
const (
	Outside Talker = iota
	Pod
	Node
)

// String is the word for it in questions and answers.
func (t Talker) String() string { return [...]string{"outside", "pod", "node"}[t] }

// Packet is the first packet of a connection.
type Packet struct {
	From   Talker
	Source netip.Addr // invalid if any of that kind may be meant

	Destination netip.Addr
	Port        uint16
	Protocol    model.Protocol
	// ToNode says that the routing table calls the destination local.
	ToNode bool
}

// Verdict is what becomes of a packet.
type Verdict uint8

// The verdicts.
const (
	Unknown   Verdict = iota // it cannot be told
	Untouched                // no Service's: it goes on as it is
	Served                   // it reaches an endpoint
	Rejected                 // the client is told that it is refused
	Dropped                  // the client is told nothing
)

// String is the word for programs.
func (v Verdict) String() string {
	return [...]string{"unknown", "untouched", "served", "rejected", "dropped"}[v]
}

// Cause is why a packet gets its verdict.
type Cause string

// The causes.
const (
	ByFrontend       Cause = "frontend"           // it meets a frontend with endpoints
	BySourceRanges   Cause = "source-ranges"      // its source may not connect
	NoEndpoints      Cause = "no-endpoints"       // the Service has none that can be used
	NoLocalEndpoints Cause = "no-local-endpoints" // there are some, but not on this node
	NoSuchPort       Cause = "no-such-port"       // of a ClusterIP, or of a Service
	UnusedAddress    Cause = "unused-address"     // of a service CIDR, of no Service
	NotAService      Cause = "not-a-service"      // no Service has the address
	NoIPv6           Cause = "no-ipv6"            // the node does none
	NoSuchService    Cause = "no-such-service"    // none of that name is known
	NotInSync        Cause = "not-in-sync"        // the proxy does not know the cluster yet
)

// Decision is what becomes of a packet and why.
type Decision struct {
	Verdict  Verdict
	Cause    Cause
	Frontend *plan.Frontend // that the packet meets, nil for none
	// Route is that of the frontend that the packet takes, and Outside says that
	// it is the one for talkers from outside.
	Route   *plan.Route
	Outside bool
	// Relayed says that the proxy itself accepts the connection and makes
	// another to the endpoint: a node port on a loopback address.
	Relayed bool
	// Depends says that the source is not known well enough to tell whether it
	// may connect. The decision is then for one that may.
	Depends bool

	packet Packet
}

// Decide says what becomes of a packet under what is desired.
func Decide(d *plan.Desired, p Packet) Decision {
	if !d.Settings.Serves(model.FamilyOf(p.Destination)) {
		return Decision{packet: p, Verdict: Untouched, Cause: NoIPv6}
	}
	out := Decision{packet: p}
	out.Frontend, _ = d.Lookup(plan.Key{Addr: p.Destination, Port: p.Port, Protocol: p.Protocol}, func(netip.Addr) bool { return p.ToNode })
	if out.Frontend == nil && relays(&d.Settings, p) {
		out.Frontend = d.Frontends[plan.NodePortKey(model.FamilyOf(p.Destination), p.Port, p.Protocol)]
		out.Relayed = out.Frontend != nil
	}
	if out.Frontend != nil {
		out.connect(d)
		return out
	}
	if _, used := d.ClusterIPs[p.Destination]; used {
		out.Verdict, out.Cause = Rejected, NoSuchPort
	} else if anyContains(d.Settings.ServiceCIDRs, p.Destination) {
		out.Verdict, out.Cause = Dropped, UnusedAddress
	} else {
		out.Verdict, out.Cause = Untouched, NotAService
	}
	return out
}

// relays tells whether the proxy itself serves node ports at the packet's
// destination, which only the node can reach.
func relays(s *plan.Settings, p Packet) bool {
	return p.From == Node && p.Protocol != model.SCTP && slices.Contains(s.LoopbackIPs, p.Destination)
}

func (c *Decision) connect(d *plan.Desired) {
	f := c.Frontend
	c.Route = &f.Route
	if f.Outside != nil && c.packet.From == Outside {
		c.Route, c.Outside = f.Outside, true
	}
	admitted, depends := c.admits(d)
	c.Depends = depends
	switch {
	case !admitted:
		c.Verdict, c.Cause = Dropped, BySourceRanges
	case len(c.Route.Endpoints) > 0:
		c.Verdict, c.Cause = Served, ByFrontend
	default:
		c.Verdict, c.Cause = Rejected, Cause(c.Route.Empty.Cause.String())
		if c.Route.Empty.Verdict == plan.Drop {
			c.Verdict = Dropped
		}
	}
}

// admits tells whether the frontend lets the source in, and whether that depends
// on an address that is not known.
func (c *Decision) admits(d *plan.Desired) (yes, depends bool) {
	f, source := c.Frontend, c.packet.Source
	switch {
	case !f.Filtered:
		return true, false
	case source.IsValid():
		return anyContains(f.Sources, source), false
	case len(f.Sources) == 0:
		return false, false
	}
	pods := d.Settings.Detector(f.Family()).Sources
	if c.packet.From != Pod || len(pods) == 0 {
		return true, true
	}
	within, overlap := true, false
	for _, p := range pods {
		within = within && slices.ContainsFunc(f.Sources, func(s netip.Prefix) bool { return s.Bits() <= p.Bits() && s.Contains(p.Addr()) })
		overlap = overlap || slices.ContainsFunc(f.Sources, p.Overlaps)
	}
	return overlap, overlap && !within
}

// leadsTo tells whether an endpoint is one that the packet may reach. Of a client
// the kernel may also remember an endpoint that it reached by another frontend.
func (c *Decision) leadsTo(endpoint netip.AddrPort) bool {
	return slices.ContainsFunc(c.Route.Endpoints, func(e plan.Endpoint) bool { return e.AddrPort == endpoint })
}

// Masqueraded tells whether an endpoint sees the node's address instead of the
// client's.
func (c *Decision) Masqueraded(endpoint netip.Addr) bool {
	switch {
	case c.Frontend == nil:
		return false
	case c.Relayed:
		return true
	}
	switch c.Frontend.Masquerade {
	case plan.MasqueradeAlways:
		return true
	case plan.MasqueradeOffCluster:
		if c.packet.From != Pod {
			return true
		}
	case plan.MasqueradeNode:
		if c.packet.From == Node {
			return true
		}
	}
	return endpoint.IsValid() && c.packet.Source == endpoint
}

// whoIs tells who sends from an address, which may be local, through an interface.
// The detector is asked first, as the kernel does.
func whoIs(s *plan.Settings, local bool, source netip.Addr, in string) Talker {
	d := s.Detector(model.FamilyOf(source))
	switch {
	case anyContains(d.Sources, source),
		d.Interface != "" && in == d.Interface,
		d.InterfacePrefix != "" && strings.HasPrefix(in, d.InterfacePrefix):
		return Pod
	case local:
		return Node
	}
	return Outside
}

func anyContains(prefixes []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}
