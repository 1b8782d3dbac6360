package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// Desired is everything that the kernel must do on this node.
type Desired struct {
	Settings Settings
	// Eligibility is that of this node.
	Eligibility Eligibility
	Frontends   map[Key]*Frontend
	// Ranges are the frontends of port ranges.
	Ranges Ranges
	// ClusterIPs are the ClusterIPs in use: ports of theirs that are no
	// frontend are rejected.
	ClusterIPs map[netip.Addr]struct{}
	// ExclusiveIPs are the external addresses with frontends that are Exclusive, and
	// how many. Ports of theirs that are no frontend are rejected, unless the address is
	// one of the node's.
	ExclusiveIPs map[netip.Addr]int
	// HealthChecks are the health check node ports to serve, by Service.
	HealthChecks map[model.Name]HealthCheck
	// Problems describe what was left out and why, by object.
	Problems map[model.Object][]model.Problem
	// Invalid are the problems of objects that are not used because of them.
	Invalid []model.Problem
	// EventsOn are the objects on which this node records
	// Events: Services that have an endpoint here, and EndpointSlices with
	// Problems that do. Every node finds the same problems with a Service, and
	// a large cluster must not record an Event on each of them.
	EventsOn map[model.Object]struct{}
}

// Key is the address, port and protocol that a frontend answers on. A node
// port answers where Settings.HasNodePorts says; its Addr is the unspecified
// address of its family.
//
// A frontend of a port range answers on the ports from Port to Last, at which no other frontend of the
// address answers. Last is 0 for a single port.
type Key struct {
	Addr     netip.Addr
	Port     uint16
	Protocol model.Protocol
	Last     uint16
}

// Family is the IP family of the frontend.
func (k Key) Family() model.Family { return model.FamilyOf(k.Addr) }

// NodePort reports whether the frontend answers on the node port addresses.
func (k Key) NodePort() bool { return k.Addr.IsUnspecified() }

// Compare orders keys by address, port and protocol.
func (k Key) Compare(o Key) int {
	if c := k.Addr.Compare(o.Addr); c != 0 {
		return c
	}
	if c := int(k.Port) - int(o.Port); c != 0 {
		return c
	}
	return cmp.Or(int(k.Protocol)-int(o.Protocol), int(k.Last)-int(o.Last))
}

func (k Key) String() string {
	return netip.AddrPortFrom(k.Addr, k.Port).String() + k.toLast() + "/" + k.Protocol.String()
}

// Kind is the field of a Service that a frontend comes from.
type Kind uint8

// The kinds of frontend, in the order in which they take precedence.
const (
	ClusterIP Kind = iota
	LoadBalancerIP
	ExternalIP
	NodePort
)

func (k Kind) String() string {
	return [...]string{"ClusterIP", "LoadBalancerIP", "ExternalIP", "NodePort"}[k]
}

// Frontend is an address and port, and what happens to new connections there.
type Frontend struct {
	Key
	Kind    Kind
	Service model.Name
	Port    string // name of the service port

	// Route is where connections go: all of them, or, if Outside is set, those
	// from pods and from the node itself.
	Route Route
	// Outside is where all other connections go under external traffic policy
	// Local; nil otherwise.
	Outside *Route
	// Direct is which nodes answer connections from outside themselves, in place of Route; nil unless the
	// Service asks for that and it is possible.
	Direct *Direct
	// AlsoServing are endpoints that keep their established flows but get no
	// new connections, because they are terminating or because policies or
	// topology left them out of the pools. Sorted as a pool is, and shared
	// between frontends.
	AlsoServing []Endpoint
	// Watched says that it is to be noticed which endpoints do not answer new connections, and
	// Ejected are those that are left out of a pool because they did not. Sorted as a pool is.
	Watched bool
	Ejected []Endpoint
	// Released says that another proxy serves the frontend from now on: what follows from its flows is no
	// longer for this one to decide when it goes.
	Released bool
	// ProxyConnects says that the proxy accepts connections itself, and opens others to
	// the endpoints.
	ProxyConnects bool

	Masquerade Masquerade
	// MasqueradeCause is why Masquerade is as it is.
	MasqueradeCause MasqueradeCause
	// Affinity is the session affinity timeout in seconds, 0 for none. A client
	// keeps its endpoint at all frontends of the service port in this family,
	// as long as the endpoint is in the pool that the client's connections may
	// use.
	Affinity uint32

	// PreserveDestination says that endpoints get packets with the address that clients sent them to.
	PreserveDestination bool
	// HealthPort is a port of the address at which the node itself answers health checks of the load
	// balancer, 0 for none.
	HealthPort uint16

	// Filtered says that only Sources may connect; all others are dropped.
	Filtered bool
	Sources  []netip.Prefix // sorted; those of the frontend's family
}

// Exclusive reports whether the frontend has its external address with all ports, because
// the kernel's balancer serves it.
func (f *Frontend) Exclusive() bool {
	return f != nil && f.Route.Delegated() && !f.ProxyConnects && (f.Kind == LoadBalancerIP || f.Kind == ExternalIP)
}

// Routes returns the one or two routes of the frontend.
func (f *Frontend) Routes() []*Route {
	if f.Outside != nil {
		return []*Route{&f.Route, f.Outside}
	}
	return []*Route{&f.Route}
}

// Admits reports whether a source may connect.
func (f *Frontend) Admits(source netip.Addr) bool {
	return !f.Filtered || anyContains(f.Sources, source)
}

// HasEndpoints reports whether new connections of any client can reach an
// endpoint.
func (f *Frontend) HasEndpoints() bool {
	return slices.ContainsFunc(f.Routes(), func(r *Route) bool { return len(r.Endpoints) > 0 })
}

// Serves reports whether an endpoint may keep the flows that it has through the
// frontend, whether or not it gets new ones.
func (f *Frontend) Serves(at netip.AddrPort) bool {
	return f.Offers(at) || contains(f.AlsoServing, at)
}

// ServesAll reports whether all endpoints that another version of the frontend
// serves may keep their flows.
func (f *Frontend) ServesAll(of *Frontend) bool {
	lost := func(e Endpoint) bool { return !f.Serves(e.AddrPort) }
	return !slices.ContainsFunc(of.AlsoServing, lost) &&
		!slices.ContainsFunc(of.Routes(), func(r *Route) bool { return slices.ContainsFunc(r.Endpoints, lost) })
}

// EjectedEndpoints returns how many endpoints are left out because they do not answer.
func (d *Desired) EjectedEndpoints() int {
	type target struct {
		netip.AddrPort
		model.Protocol
	}
	all := map[target]struct{}{}
	for _, f := range d.Frontends {
		for _, e := range f.Ejected {
			all[target{e.AddrPort, f.Protocol}] = struct{}{}
		}
	}
	return len(all)
}

// Offers reports whether new connections of any client may be led to an endpoint.
func (f *Frontend) Offers(at netip.AddrPort) bool {
	return f.Route.Contains(at) || f.Outside != nil && f.Outside.Contains(at)
}

// OffersAll reports whether all endpoints that get new connections from another version of the
// frontend still do.
func (f *Frontend) OffersAll(of *Frontend) bool {
	for _, r := range of.Routes() {
		next := f.Route.Endpoints // what may be among them still: both are sorted
		for _, e := range r.Endpoints {
			for len(next) > 0 && next[0].Compare(e.AddrPort) < 0 {
				next = next[1:]
			}
			if (len(next) == 0 || next[0].AddrPort != e.AddrPort) && (f.Outside == nil || !f.Outside.Contains(e.AddrPort)) {
				return false
			}
		}
	}
	return true
}

func contains(sorted []Endpoint, at netip.AddrPort) bool {
	_, found := search(sorted, at)
	return found
}

func search(sorted []Endpoint, at netip.AddrPort) (int, bool) {
	return slices.BinarySearchFunc(sorted, at, func(e Endpoint, at netip.AddrPort) int {
		return e.AddrPort.Compare(at)
	})
}

// Route is a pool of endpoints, and what happens when it is empty.
type Route struct {
	// Endpoints is sorted by address and port, without duplicates, and may be
	// shared between frontends.
	Endpoints []Endpoint
	// Empty is what happens when there is no endpoint, and why there is none.
	Empty Refusal
	// Local says that a traffic policy admits endpoints on this node only.
	Local bool
	// Algorithm is how an endpoint is chosen for a new connection.
	Algorithm model.Algorithm
	// Balancer is who chooses instead of the mode's rules, the proxy itself or the kernel's
	// balancer, which does it in its own way if Algorithm is Random; nil if the rules do.
	Balancer *Balancer
}

// Delegated reports whether the mode's rules do not choose an endpoint.
func (r *Route) Delegated() bool { return r.Balancer != nil }

// Find returns the endpoint of the pool with an address, and whether there is one.
func (r *Route) Find(at netip.AddrPort) (Endpoint, bool) {
	i, found := search(r.Endpoints, at)
	if !found {
		return Endpoint{}, false
	}
	return r.Endpoints[i], true
}

// Contains reports whether an endpoint is in the pool.
func (r *Route) Contains(at netip.AddrPort) bool { return contains(r.Endpoints, at) }

// Refuses reports whether the route refuses connections for that cause.
func (r *Route) Refuses(why Cause) bool { return len(r.Endpoints) == 0 && r.Empty.Cause == why }

// Verdict returns what happens to connections that take the route.
func (r *Route) Verdict() Verdict {
	if len(r.Endpoints) > 0 {
		return Forward
	}
	return r.Empty.Verdict
}

// Closed reports whether an address at which nobody listens does by itself to connections what the
// route is to do.
func (r *Route) Closed() bool {
	v := r.Verdict()
	return v == Reject || v == Pass
}

// Endpoint is a destination of connections. At frontends of port ranges its port is 0: connections keep
// the port that the client chose.
type Endpoint struct {
	netip.AddrPort
	Local bool // runs on this node
	// Weight is the endpoint's share of new connections, in relation to others
	// of the pool; 0 if all have the same.
	Weight uint16
}

// Masquerade says which connections get the node's address as their source. A
// connection of an endpoint to itself is always masqueraded.
type Masquerade uint8

// The connections that are masqueraded.
const (
	MasqueradeNever      Masquerade = iota
	MasqueradeNode                  // the node's own
	MasqueradeOffCluster            // all but those from pods
	MasqueradeAlways
	MasqueradeUnknown // the mechanism decides that
)

func (m Masquerade) String() string {
	return [...]string{"never", "node", "off-cluster", "always", "unknown"}[m]
}

// MasqueradeCause is why a connection is masqueraded, or is not.
type MasqueradeCause uint8

// The causes. The first five and the last are of frontends, the others of single connections.
const (
	PodsNotDetected       MasqueradeCause = iota // no: pods cannot be distinguished from other clients
	ClientNotPod                                 // yes: the client of a ClusterIP is not a pod
	MasqueradeAllSet                             // yes: Config.MasqueradeAll
	ExternalPolicyCluster                        // yes: replies must come back through this node
	ExternalPolicyLocal                          // no: the endpoint is on this node
	ClientIsPod                                  // no: the client of a ClusterIP is a pod
	ClientIsNode                                 // yes: this node connects to an external address
	ClientIsEndpoint                             // yes: its replies would not come back through the node
	ProxyConnects                                // yes: the endpoint could not answer the client through this node
	EndpointIsNode                               // no: the connection does not leave the node
	NodeAnswers                                  // no: direct return
	SomeNodesAnswer                              // yes: direct return, but not of all nodes
	NodeCannotAnswer                             // yes: direct return, but not of this client's node
	MechanismDecides                             // not known: Limits.OwnSource
)

// Settings applies to the whole node.
type Settings struct {
	// IPv4 and IPv6 detect which connections come from pods.
	IPv4, IPv6 Detector
	// NoIPv6 says that the node does not support IPv6: nothing of that family
	// is programmed.
	NoIPv6 bool
	// NodePortAll4 and NodePortAll6 say that node ports of a family answer on
	// every address that is local according to the routing table, except
	// loopback, including addresses that are added later and those on no
	// interface.
	NodePortAll4, NodePortAll6 bool
	// NodePortIPs are the addresses that node ports answer on, sorted. If all
	// of them do, it holds the known ones.
	NodePortIPs []netip.Addr
	// LoopbackIPs are loopback addresses that node ports answer on as well.
	// The proxy itself serves them.
	LoopbackIPs []netip.Addr
	// LoopbackLocal and UnservedLoopback are as in Config.
	LoopbackLocal    bool
	UnservedLoopback UnservedLoopback
	// ServiceCIDRs are the ranges of ClusterIPs, sorted and without overlaps:
	// packets to an unused address in them are dropped.
	ServiceCIDRs []netip.Prefix
	// ExclusiveIPs says that frontends may be Exclusive.
	ExclusiveIPs bool
	// PodCIDRs are the ranges of pods in the cluster, as far as they are known, HostIPs the
	// addresses of the node, and ProxyIPs those at which the proxy accepts connections, at
	// most one of each family; if the proxy itself connects.
	PodCIDRs          []netip.Prefix
	HostIPs, ProxyIPs []netip.Addr
	// PrimaryIPs are the addresses by which other nodes know this one, at most one of each family;
	// if the mode needs them.
	PrimaryIPs []netip.Addr
	// DirectReturn is nil unless it is switched on.
	DirectReturn *DirectReturn
	// MasqueradeMark is the bit of the packet mark that requests masquerading.
	MasqueradeMark uint32
	// DropInvalid drops forwarded packets that connection tracking considers
	// invalid. They would be forwarded untranslated, and a host that gets a
	// segment of a connection from an address that it does not know resets the
	// connection.
	DropInvalid bool
	// NodePortsOnly says that nothing but node ports is served, by the proxy itself.
	NodePortsOnly bool
}

// ProxyIP is the one of ProxyIPs of a family, invalid if there is none.
func (s *Settings) ProxyIP(f model.Family) netip.Addr { return oneOf(f, s.ProxyIPs) }

// PrimaryIP does the same for PrimaryIPs.
func (s *Settings) PrimaryIP(f model.Family) netip.Addr { return oneOf(f, s.PrimaryIPs) }

func oneOf(f model.Family, ips []netip.Addr) netip.Addr {
	for _, ip := range ips {
		if model.FamilyOf(ip) == f {
			return ip
		}
	}
	return netip.Addr{}
}

// Serves reports whether the node supports a family.
func (s *Settings) Serves(f model.Family) bool { return f != model.IPv6 || !s.NoIPv6 }

// Detector returns the detector of a family.
func (s *Settings) Detector(f model.Family) Detector {
	if f == model.IPv4 {
		return s.IPv4
	}
	return s.IPv6
}

// NodePortAll reports whether node ports of a family answer on every local
// address.
func (s *Settings) NodePortAll(f model.Family) bool {
	if f == model.IPv4 {
		return s.NodePortAll4
	}
	return s.NodePortAll6
}

// HasNodePorts reports whether node ports answer on an address, except those of
// LoopbackIPs. If all local addresses do, local is called to ask the routing table.
func (s *Settings) HasNodePorts(ip netip.Addr, local func(netip.Addr) bool) bool {
	if _, found := slices.BinarySearchFunc(s.NodePortIPs, ip, netip.Addr.Compare); found {
		return true
	}
	return s.NodePortAll(model.FamilyOf(ip)) && !ip.IsLoopback() && local(ip)
}

// NodePortAddrs returns the known addresses of a family that rules answer node ports on.
func (s *Settings) NodePortAddrs(f model.Family) []netip.Addr { return addrsOf(f, s.NodePortIPs) }

// LoopbackAddrs returns those on which the proxy accepts connections to node ports itself.
func (s *Settings) LoopbackAddrs(f model.Family) []netip.Addr { return addrsOf(f, s.LoopbackIPs) }

// ListenAddrs returns where a process listens that serves a port wherever node ports of a family answer. If
// that is every local address, it is the unspecified one, which includes loopback.
func (s *Settings) ListenAddrs(f model.Family) []netip.Addr {
	if s.NodePortAll(f) {
		return []netip.Addr{unspecified(f)}
	}
	return append(s.NodePortAddrs(f), s.LoopbackAddrs(f)...)
}

func addrsOf(f model.Family, ips []netip.Addr) (out []netip.Addr) {
	for _, ip := range ips {
		if model.FamilyOf(ip) == f {
			out = append(out, ip)
		}
	}
	return out
}

// Detector detects which connections come from pods. At most one of its fields
// is set; the zero Detector detects none.
type Detector struct {
	Sources         []netip.Prefix // the source address is in one of these
	Interface       string         // arrived through this interface
	InterfacePrefix string         // arrived through an interface with this prefix
}

// Enabled reports whether the detector can detect anything.
func (d Detector) Enabled() bool {
	return len(d.Sources) > 0 || d.Interface != "" || d.InterfacePrefix != ""
}

// HealthCheck is the health check node port of a Service.
type HealthCheck struct {
	Service        model.Name
	Port           uint16
	LocalEndpoints int // usable endpoints on this node
	LocalIPv6      int // those of them with an IPv6 address
	// IPv4 and IPv6 are the families of the Service, in which the port is
	// served.
	IPv4, IPv6 bool
}

// Has reports whether the Service is of a family.
func (h HealthCheck) Has(f model.Family) bool {
	if f == model.IPv4 {
		return h.IPv4
	}
	return h.IPv6
}

// Local returns the number of usable endpoints of a family on this node. A pod
// of a dual-stack Service is an endpoint in each family.
func (h HealthCheck) Local(f model.Family) int {
	if f == model.IPv6 {
		return h.LocalIPv6
	}
	return h.LocalEndpoints - h.LocalIPv6
}
