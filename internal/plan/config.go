package plan

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// Config is the administrator's configuration, as far as planning depends on
// it.
type Config struct {
	// NodeName is the name of this node: endpoints with it are local.
	NodeName string

	// RequireNode says that a Node object of that name must exist, as in a
	// cluster.
	RequireNode bool

	// NoIPv6 says that this node does not support IPv6. Nothing of that family
	// is planned then, and its absence is not reported as a problem.
	NoIPv6 bool

	DetectLocal DetectLocal
	// ClusterCIDRs are for DetectClusterCIDR: at most one for each family.
	ClusterCIDRs []netip.Prefix
	// BridgeInterface is for DetectBridgeInterface.
	BridgeInterface string
	// InterfaceNamePrefix is for DetectInterfaceNamePrefix.
	InterfaceNamePrefix string

	// NodeIP overrides the node's primary IP of its family; invalid to use that
	// of the Node object.
	NodeIP netip.Addr

	NodePortAddresses NodePortAddresses

	// MasqueradeAll masquerades every connection to a ClusterIP.
	MasqueradeAll bool
	MasqueradeBit uint8

	// DropInvalid drops packets that connection tracking considers invalid.
	DropInvalid bool

	// Algorithms are those that the mode can do.
	Algorithms model.Algorithms
	// CanEject says that the mode notices connections that endpoints do not answer, and Eject that
	// such endpoints are left out for a while where a Service does not say otherwise.
	CanEject, Eject bool
	// CanDirectReturn says that the mode passes connections on to the nodes that answer them, and DirectReturn
	// that it does so for Services that ask for that: through DirectDevice, or, if that is empty, the device of
	// the node's own address.
	CanDirectReturn, DirectReturn bool
	DirectDevice                  string
	// DefaultAlgorithm is for Services that do not say how endpoints are chosen.
	DefaultAlgorithm model.Algorithm
	// Balancer is the kernel's, which chooses endpoints in place of the mode's rules where it
	// can; zero if the mode does without.
	Balancer Balancer
	// ProxyConnects says that the proxy itself accepts connections, and opens others to the
	// endpoints, of all protocols for which it can: see ProxyForwards.
	ProxyConnects bool

	// LoopbackLocal says that under external traffic policy Local node ports on loopback addresses
	// lead to endpoints on this node only, as they do for clients outside.
	LoopbackLocal bool
	// UnservedLoopback is what happens to packets to node ports at loopback addresses at which these
	// are not served.
	UnservedLoopback UnservedLoopback

	// Limits are what the mode cannot do.
	Limits Limits
	// PreserveDestination says that the mode can lead packets to endpoints on this node with the
	// address that clients sent them to, where Services ask for that.
	PreserveDestination bool
	// HealthPort is where the health of the node is asked for at load balancer IPs of Services that
	// have no health check node port; 0 if health checks are not forwarded there.
	HealthPort uint16
	// PrimaryIPs says that the mode needs to know those of the node.
	PrimaryIPs bool

	// KnownNodePortIPs restricts node ports on all local addresses to those on
	// interfaces: the mode needs an object for each.
	KnownNodePortIPs bool

	// NoExternalIPs disables the externalIPs of Services, and ExternalIPRanges those outside of these
	// ranges, if there are any.
	NoExternalIPs    bool
	ExternalIPRanges []netip.Prefix
	// PortRanges says that the mode can serve ranges of ports.
	PortRanges bool
	// FrontendsOnly leaves alone packets that are addressed to no frontend: to
	// other ports of ClusterIPs, and to unallocated addresses of service CIDRs.
	FrontendsOnly bool
	// NodePortsOnly plans node ports and nothing else, of the protocols that the proxy
	// can forward: it has to accept connections itself.
	NodePortsOnly bool
}

func (cfg *Config) serves(f model.Family) bool { return f != model.IPv6 || !cfg.NoIPv6 }

// Families returns the families that the node supports.
func (cfg *Config) Families() []model.Family {
	return slices.DeleteFunc(slices.Clone(model.Families[:]), func(f model.Family) bool { return !cfg.serves(f) })
}

// Balancer chooses endpoints by itself. One of the kernel gets packets that are delivered to the
// node, so external addresses at which it serves are the Service's with all their ports: see
// Desired.ExclusiveIPs.
type Balancer struct {
	Name string // for people
	// Default is how it chooses where a Service does not say, in its own words; empty if it
	// knows all algorithms.
	Default string
}

// itself is the proxy, where it connects.
var itself = &Balancer{Name: "the proxy"}

// UnservedLoopback is what happens to packets of the node to a node port at a loopback address at
// which it is not served.
type UnservedLoopback uint8

// What can happen to them.
const (
	UnservedPass   UnservedLoopback = iota // nothing
	UnservedCount                          // they are counted
	UnservedReject                         // they are counted and rejected
)

// DetectLocal says how traffic from pods is recognised.
type DetectLocal uint8

// The ways to recognise traffic from pods.
const (
	DetectNone                DetectLocal = iota
	DetectClusterCIDR                     // the source is in a cluster CIDR: every pod
	DetectNodeCIDR                        // the source is in a pod CIDR of this node
	DetectBridgeInterface                 // it arrived through this bridge
	DetectInterfaceNamePrefix             // it arrived through an interface with this prefix
)

// NodePortAddresses selects the addresses of the node that serve node ports.
// The zero value means the node's primary IPs.
type NodePortAddresses struct {
	All      bool           // every local address except loopback
	Primary  bool           // the node's primary IPs
	Prefixes []netip.Prefix // every address of the machine's interfaces in one of these
	// Loopback are the loopback addresses where the proxy itself serves node ports. No
	// other field selects any.
	Loopback []netip.Addr
}

// AllOf reports whether every local address of a family is selected:
// explicitly, by a prefix of length 0, or because there are only prefixes of
// the other family, which do not restrict this one.
func (a *NodePortAddresses) AllOf(f model.Family) bool {
	if a.All {
		return true
	}
	named := false
	for _, p := range a.Prefixes {
		if model.FamilyOf(p.Addr()) == f {
			named = true
			if p.Bits() == 0 {
				return true
			}
		}
	}
	return len(a.Prefixes) > 0 && !named && !a.Primary
}
