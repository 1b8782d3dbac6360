package randomworld

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// Topology is what a lab has. Fields may lack a family, or be empty; what is
// missing is not used.
type Topology struct {
	NodeName string
	NodeIPs  []netip.Addr   // the node's own; the first of a family is primary
	PodCIDRs []netip.Prefix // of this node's pods
	// LocalRoutes are ranges of addresses that are the node's by a route, and on no
	// interface.
	LocalRoutes []netip.Prefix

	ClusterCIDRs []netip.Prefix // of all pods, one for each family

	LocalPods, RemotePods []Pod
	OutsideIPs            []netip.Addr
	// Uplink is the interface through which everything arrives that comes
	// neither from the node nor from its pods.
	Uplink string
	// PodInterfacePrefix starts the names of local pods' interfaces and of no
	// other. It may be empty.
	PodInterfacePrefix string

	// EndpointPorts are those that every pod and the node answer on.
	EndpointPorts []uint16
	NodePorts     PortRange

	// The ranges that addresses of Services are taken from, for each family.
	// ServiceCIDR should be wider than ClusterIPRange or the same.
	ClusterIPRange, ServiceCIDR        []netip.Prefix
	ExternalIPRange, LoadBalancerRange []netip.Prefix

	// Annotations says that Services have algorithms, source ranges at all external addresses and
	// packets that are left alone, and that slices have weights: what upstream has not.
	Annotations bool
}

// Pod is an address of a pod.
type Pod struct {
	Addr      netip.Addr
	Node      string
	Interface string // on this node; empty for a remote pod
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// Example returns a dual-stack topology for tests that send no packets.
func Example() Topology {
	addrs := func(text ...string) (out []netip.Addr) {
		for _, s := range text {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	prefixes := func(text ...string) (out []netip.Prefix) {
		for _, s := range text {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	pods := func(node string, interfaces []string, text ...string) (out []Pod) {
		for i, a := range addrs(text...) {
			out = append(out, Pod{Addr: a, Node: node, Interface: interfaces[i%len(interfaces)]})
		}
		return out
	}
	return Topology{
		Annotations:  true,
		NodeName:     "node-a",
		NodeIPs:      addrs("192.0.2.10", "2001:db8::10", "192.0.2.11", "2001:db8::11", "10.1.1.254", "fd01:0:0:1::fe"),
		PodCIDRs:     prefixes("10.1.1.0/24", "fd01:0:0:1::/64"),
		LocalRoutes:  prefixes("198.51.100.128/28", "2001:db8:a::/124"),
		ClusterCIDRs: prefixes("10.1.0.0/16", "fd01::/48"),
		LocalPods: pods("node-a", []string{"veth1", "veth2", "veth3"},
			"10.1.1.1", "10.1.1.2", "10.1.1.3", "fd01:0:0:1::1", "fd01:0:0:1::2", "fd01:0:0:1::3"),
		RemotePods: pods("node-b", []string{""},
			"10.1.2.1", "10.1.2.2", "10.1.2.3", "fd01:0:0:2::1", "fd01:0:0:2::2", "fd01:0:0:2::3"),
		OutsideIPs:         addrs("203.0.113.5", "203.0.113.6", "2001:db8:5::5", "2001:db8:5::6"),
		Uplink:             "eth0",
		PodInterfacePrefix: "veth",
		EndpointPorts:      []uint16{8080, 8081, 8082},
		NodePorts:          PortRange{30000, 30007},
		ClusterIPRange:     prefixes("10.96.0.0/25", "fd96::/121"),
		ServiceCIDR:        prefixes("10.96.0.0/24", "fd96::/120"),
		ExternalIPRange:    prefixes("198.51.100.0/28", "2001:db8:e::/124"),
		LoadBalancerRange:  prefixes("198.51.100.64/28", "2001:db8:f::/124"),
	}
}

// families returns those that ClusterIPs can have.
func (t Topology) families() []model.Family {
	var out []model.Family
	for _, f := range model.Families {
		if len(prefixesOf(f, t.ClusterIPRange)) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// pods returns all pods of the family, local and remote, and the node itself,
// since there are host-network pods.
func (t Topology) pods(f model.Family) []Pod {
	all := slices.Concat(t.LocalPods, t.RemotePods)
	if node := addrsOf(f, t.NodeIPs); len(node) > 0 {
		all = append(all, Pod{Addr: node[0], Node: t.NodeName})
	}
	return slices.DeleteFunc(all, func(p Pod) bool { return model.FamilyOf(p.Addr) != f })
}

func addrsOf(f model.Family, addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return model.FamilyOf(a) != f })
}

func prefixesOf(f model.Family, prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool {
		return model.FamilyOf(p.Addr()) != f
	})
}

// firstAddrs returns up to n addresses of the ranges of a family, without the
// first of a range: some hosts treat it as broadcast.
func firstAddrs(f model.Family, ranges []netip.Prefix, n int) []netip.Addr {
	var out []netip.Addr
	for _, r := range prefixesOf(f, ranges) {
		for a := r.Masked().Addr().Next(); r.Contains(a) && len(out) < n; a = a.Next() {
			out = append(out, a)
		}
	}
	return out
}

func oneIn(rng *rand.Rand, n int) bool { return rng.IntN(n) == 0 }

// pick returns a random element, or the zero value if the list is empty.
func pick[T any](rng *rand.Rand, list []T) T {
	if len(list) == 0 {
		var none T
		return none
	}
	return list[rng.IntN(len(list))]
}

// some returns up to n elements of the list, each at most once.
func some[T any](rng *rand.Rand, list []T, n int) []T {
	list = slices.Clone(list)
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(n, len(list))]
}
