package plan

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// Config is what the administrator decided.
type Config struct {
	// NodeName is the name of this node: endpoints with it are local.
	NodeName string

	// RequireNode says that there must be a Node object of that name, as there is
	// one of every node in a cluster.
	RequireNode bool

	// NoIPv6 says that this node cannot do IPv6. Nothing of it is planned then,
	// and nobody is to blame for it.
	NoIPv6 bool

	DetectLocal DetectLocal
	// ClusterCIDRs are for DetectClusterCIDR: at most one for each family.
	ClusterCIDRs []netip.Prefix
	// BridgeInterface is for DetectBridgeInterface.
	BridgeInterface string
	// InterfaceNamePrefix is for DetectInterfaceNamePrefix.
	InterfaceNamePrefix string

	// NodeIP is the node's primary IP of its family, whatever the Node object
	// says; invalid if that is to be believed.
	NodeIP netip.Addr

	NodePortAddresses NodePortAddresses

	// MasqueradeAll masquerades every connection to a ClusterIP.
	MasqueradeAll bool
	MasqueradeBit uint8

	// DropInvalid drops what connection tracking can make nothing of.
	DropInvalid bool

	// NoExternalIPs switches the externalIPs of Services off.
	NoExternalIPs bool
	// FrontendsOnly leaves packets alone that go to no frontend: to other ports of
	// ClusterIPs, and to addresses of service CIDRs that no Service has.
	FrontendsOnly bool
}

// serves tells whether the node can do a family at all.
func (cfg *Config) serves(f model.Family) bool { return f != model.IPv6 || !cfg.NoIPv6 }

// Families are those that the node can do.
func (cfg *Config) Families() []model.Family {
	return slices.DeleteFunc(slices.Clone(model.Families[:]), func(f model.Family) bool { return !cfg.serves(f) })
}

// DetectLocal says how traffic from pods is recognised.
type DetectLocal uint8

// The ways to recognise traffic from pods.
const (
	DetectNone                DetectLocal = iota
	DetectClusterCIDR                     // the source is in a cluster CIDR: every pod
	DetectNodeCIDR                        // the source is in a pod CIDR of this node
	DetectBridgeInterface                 // it came through this bridge
	DetectInterfaceNamePrefix             // it came through such an interface
)

// NodePortAddresses says which of the node's addresses serve node ports. The
// zero value means the node's primary IPs.
type NodePortAddresses struct {
	All      bool           // every local address, loopback apart
	Primary  bool           // the node's primary IPs
	Prefixes []netip.Prefix // every address of the machine's interfaces in these
	// Loopback are the loopback addresses that node ports are relayed from.
	// Nothing else here selects one.
	Loopback []netip.Addr
}

// AllOf tells whether every local address of a family is selected: by name, by a
// range of all addresses, or because there are ranges of the other family alone,
// which say nothing about this one.
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
