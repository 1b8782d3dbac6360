package plan

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// Desired is all that the kernel must do on this node.
type Desired struct {
	Settings Settings
	// Eligibility is of this node.
	Eligibility Eligibility
	Frontends   map[Key]*Frontend
	// ClusterIPs are the ClusterIPs in use: a port of theirs that is no
	// frontend is rejected.
	ClusterIPs map[netip.Addr]struct{}
	// HealthChecks are the health check node ports to serve, by Service.
	HealthChecks map[model.Name]HealthCheck
	// Problems are what was left out and why, by object ("Service default/web").
	Problems map[string][]model.Problem
	// Refused is what is wrong with objects that were not taken over at all.
	Refused []model.Problem
	// EventsOn are the objects, named likewise, that this node records Events on:
	// Services of which it runs an endpoint, and EndpointSlices with Problems of
	// which it does. All nodes find the same wrong with a Service, and a large
	// cluster must not make an Event of that on each of them.
	EventsOn map[string]struct{}
}

// Change is the difference between two Desireds. Values in it are immutable.
type Change struct {
	// Revision is that of the State which the change leads to.
	Revision uint64
	// Settings is nil when they stay as they are.
	Settings *Settings
	// Set are frontends that are new or changed, Removed those that are gone.
	Set     []*Frontend
	Removed []Key
	// Serving are frontends that differ in AlsoServing or MasqueradeCause alone.
	// The kernel has nothing to do for them.
	Serving []*Frontend

	ClusterIPsAdded, ClusterIPsRemoved []netip.Addr

	// HealthPortsAdded and HealthPortsRemoved are ports of health checks. One
	// that went from a Service to another is in both. They are for modes whose
	// rules have to admit clients there.
	HealthPortsAdded, HealthPortsRemoved []uint16

	// HealthChecks and Problems say that those of Desired changed; Problems also
	// that refused objects did, or that some problems became the business of this
	// node, or ceased to be.
	HealthChecks, Problems bool
}

// Empty tells whether the kernel has nothing to do for this change.
func (c *Change) Empty() bool {
	return c.Settings == nil && len(c.Set) == 0 && len(c.Removed) == 0 &&
		len(c.ClusterIPsAdded) == 0 && len(c.ClusterIPsRemoved) == 0 &&
		len(c.HealthPortsAdded) == 0 && len(c.HealthPortsRemoved) == 0
}

// Key is the address, port and protocol that a frontend answers on. A node
// port answers where Settings.HasNodePorts says; its Addr is the unspecified
// address of its family.
type Key struct {
	Addr     netip.Addr
	Port     uint16
	Protocol model.Protocol
}

// Family is the IP family of the frontend.
func (k Key) Family() model.Family { return model.FamilyOf(k.Addr) }

// NodePort tells whether the frontend answers on the node port addresses.
func (k Key) NodePort() bool { return k.Addr.IsUnspecified() }

// Compare orders keys by address, port and protocol.
func (k Key) Compare(o Key) int {
	if c := k.Addr.Compare(o.Addr); c != 0 {
		return c
	}
	if c := int(k.Port) - int(o.Port); c != 0 {
		return c
	}
	return int(k.Protocol) - int(o.Protocol)
}

func (k Key) String() string {
	return netip.AddrPortFrom(k.Addr, k.Port).String() + "/" + k.Protocol.String()
}

// Kind says which field of a Service a frontend comes from.
type Kind uint8

// The kinds of frontend.
const (
	ClusterIP Kind = iota
	LoadBalancerIP
	ExternalIP
	NodePort
)

func (k Kind) String() string {
	return [...]string{"ClusterIP", "LoadBalancerIP", "ExternalIP", "NodePort"}[k]
}

// Frontend is an address and port, and what happens to a new connection there.
type Frontend struct {
	Key
	Kind    Kind
	Service model.Name
	Port    string // name of the service port

	// Route is where connections go: everybody's, unless Outside is set, and
	// then only those from pods and from the node itself.
	Route Route
	// Outside is where connections of everybody else go, under external
	// traffic policy Local. Nil otherwise.
	Outside *Route
	// AlsoServing are endpoints that get no new connections, because they are
	// terminating or policies or topology left them out of the pools, but still
	// serve: they keep the flows that they have. Sorted as a pool is, and shared
	// between frontends.
	AlsoServing []Endpoint

	Masquerade Masquerade
	// MasqueradeCause is why Masquerade is as it is.
	MasqueradeCause MasqueradeCause
	// Affinity is how many seconds a client stays with its endpoint, 0 for not. It
	// does so at all frontends of the service port in this family, as long as the
	// endpoint is in the pool that its connections may use there.
	Affinity uint32

	// Filtered says that only Sources may connect; all others are dropped.
	Filtered bool
	Sources  []netip.Prefix // sorted; those of the frontend's family
}

// Routes are the one or two routes that connections to the frontend take.
func (f *Frontend) Routes() []*Route {
	if f.Outside != nil {
		return []*Route{&f.Route, f.Outside}
	}
	return []*Route{&f.Route}
}

// HasEndpoints reports whether new connections can reach an endpoint, whoever's
// they are.
func (f *Frontend) HasEndpoints() bool {
	return slices.ContainsFunc(f.Routes(), func(r *Route) bool { return len(r.Endpoints) > 0 })
}

// Serves tells whether an endpoint may keep the flows that it has by way of the
// frontend. Whom new ones go to is another matter.
func (f *Frontend) Serves(at netip.AddrPort) bool {
	return f.Route.Contains(at) || contains(f.AlsoServing, at) || f.Outside != nil && f.Outside.Contains(at)
}

// ServesAll reports whether all endpoints that another version of the frontend
// serves may keep their flows.
func (f *Frontend) ServesAll(of *Frontend) bool {
	lost := func(e Endpoint) bool { return !f.Serves(e.AddrPort) }
	return !slices.ContainsFunc(of.AlsoServing, lost) &&
		!slices.ContainsFunc(of.Routes(), func(r *Route) bool { return slices.ContainsFunc(r.Endpoints, lost) })
}

func contains(sorted []Endpoint, at netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(sorted, at, func(e Endpoint, at netip.AddrPort) int {
		return e.AddrPort.Compare(at)
	})
	return found
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
}

// Contains reports whether an endpoint is in the pool.
func (r *Route) Contains(at netip.AddrPort) bool { return contains(r.Endpoints, at) }

// Refuses reports whether the route refuses connections, for that cause.
func (r *Route) Refuses(why Cause) bool { return len(r.Endpoints) == 0 && r.Empty.Cause == why }

// Verdict is what happens to connections that take the route.
func (r *Route) Verdict() Verdict {
	if len(r.Endpoints) > 0 {
		return Forward
	}
	return r.Empty.Verdict
}

// Endpoint is where a connection can go.
type Endpoint struct {
	netip.AddrPort
	Local bool // runs on this node
}

// Masquerade says whose connections get the node's address as their source.
// Whatever it says, a connection to the client itself is masqueraded.
type Masquerade uint8

// Whose connections are masqueraded.
const (
	MasqueradeNever      Masquerade = iota
	MasqueradeNode                  // the node's own
	MasqueradeOffCluster            // all but those from pods
	MasqueradeAlways
)

func (m Masquerade) String() string {
	return [...]string{"never", "node", "off-cluster", "always"}[m]
}

// MasqueradeCause is why a connection is masqueraded, or is not.
type MasqueradeCause uint8

// The causes. The first five are of frontends, the others of single connections.
const (
	PodsNotDetected       MasqueradeCause = iota // no: nothing tells pods from others
	ClientNotPod                                 // yes: not a pod, at a ClusterIP
	MasqueradeAllSet                             // yes: Config.MasqueradeAll
	ExternalPolicyCluster                        // yes: replies must come back through this node
	ExternalPolicyLocal                          // no: the endpoint is on this node
	ClientIsPod                                  // no, at a ClusterIP
	ClientIsNode                                 // yes: this node uses an external address
	ClientIsEndpoint                             // yes: it would answer itself directly
	ProxyConnects                                // yes: the connection is relayed
)

// Settings is what holds for the whole node.
type Settings struct {
	// Detectors tell which connections come from pods, by family.
	IPv4, IPv6 Detector
	// NoIPv6 says that the node cannot do IPv6: nothing of it is desired, and the
	// kernel has no part in it.
	NoIPv6 bool
	// NodePortAll4 and NodePortAll6 say that node ports of a family answer on every
	// address that the routing table calls local, loopback apart: now and later,
	// and also if it is on no interface.
	NodePortAll4, NodePortAll6 bool
	// NodePortIPs are the addresses that node ports answer on, sorted. Where all
	// do, it has those that are known.
	NodePortIPs []netip.Addr
	// LoopbackIPs are loopback addresses that node ports answer on as well. The
	// kernel has no part in that: they are relayed.
	LoopbackIPs []netip.Addr
	// ServiceCIDRs are the ranges of ClusterIPs, sorted and without overlaps:
	// an address of theirs that is not in use is dropped.
	ServiceCIDRs []netip.Prefix
	// MasqueradeMark is the bit of the packet mark that asks for masquerading.
	MasqueradeMark uint32
	// DropInvalid drops forwarded packets that connection tracking can make
	// nothing of: they would go on untranslated, and whoever gets a segment of a
	// connection from an address that it does not know resets the connection.
	DropInvalid bool
}

// Serves tells whether the node can do a family at all.
func (s *Settings) Serves(f model.Family) bool { return f != model.IPv6 || !s.NoIPv6 }

// Detector returns the detector of a family.
func (s *Settings) Detector(f model.Family) Detector {
	if f == model.IPv4 {
		return s.IPv4
	}
	return s.IPv6
}

// NodePortAll tells whether node ports of a family answer on every local address.
func (s *Settings) NodePortAll(f model.Family) bool {
	if f == model.IPv4 {
		return s.NodePortAll4
	}
	return s.NodePortAll6
}

// HasNodePorts tells whether node ports answer on an address, those on loopback
// addresses apart. If that is not known, local is asked whether the routing table
// calls it local.
func (s *Settings) HasNodePorts(ip netip.Addr, local func(netip.Addr) bool) bool {
	if _, found := slices.BinarySearchFunc(s.NodePortIPs, ip, netip.Addr.Compare); found {
		return true
	}
	return s.NodePortAll(model.FamilyOf(ip)) && !ip.IsLoopback() && local(ip)
}

// Detector tells which connections come from pods. At most one of its fields
// is set; the zero Detector detects nobody.
type Detector struct {
	Sources         []netip.Prefix // the source address is in one of these
	Interface       string         // arrived through this interface
	InterfacePrefix string         // arrived through an interface with this prefix
}

// Enabled tells whether the detector can detect anybody.
func (d Detector) Enabled() bool {
	return len(d.Sources) > 0 || d.Interface != "" || d.InterfacePrefix != ""
}

// HealthCheck is the health check node port of a Service.
type HealthCheck struct {
	Service        model.Name
	Port           uint16
	LocalEndpoints int // usable endpoints on this node
	LocalIPv6      int // those of them with an IPv6 address
	// IPv4 and IPv6 are the families of the Service. It is asked by these alone.
	IPv4, IPv6 bool
}

// Has tells whether the Service is of a family.
func (h HealthCheck) Has(f model.Family) bool {
	if f == model.IPv4 {
		return h.IPv4
	}
	return h.IPv6
}

// Local counts the usable endpoints on this node of one family. A pod of a
// dual-stack Service is an endpoint in each.
func (h HealthCheck) Local(f model.Family) int {
	if f == model.IPv6 {
		return h.LocalIPv6
	}
	return h.LocalEndpoints - h.LocalIPv6
}
