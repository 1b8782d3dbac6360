//go:build linux

package lab

import (
	"net/netip"
	"sync/atomic"
)

// The address ranges of the lab, IPv4 and IPv6.
var (
	ClusterCIDRs  = prefixes("10.244.0.0/16", "fd00:10:244::/48")
	Node1PodCIDRs = prefixes("10.244.1.0/24", "fd00:10:244:1::/64")
	Node2PodCIDRs = prefixes("10.244.2.0/24", "fd00:10:244:2::/64")
	ServiceCIDRs  = prefixes("10.96.0.0/16", "fd00:10:96::/112")
	ExternalCIDRs = prefixes("198.18.0.0/16", "2001:db8:18::/48")
	nodeCIDRs     = prefixes("192.0.2.0/24", "2001:db8::/64")
)

// podGateway is the next hop of every pod: no interface has these addresses, a
// permanent neighbour entry leads to the node's end of the link.
var podGateway = addresses("169.254.1.1", "fe80::1")

// PodInterfacePrefix starts the names of node1's interfaces to its pods.
const PodInterfacePrefix = "pod"

// PodBridge is the bridge on node1 that pod3 is connected to.
const PodBridge = "podbr0"

// EchoPorts are the ports on which pods and nodes answer.
var EchoPorts = []uint16{8080, 8081, 9090}

// LoopbackPort is the port on which nodes answer on their loopback addresses: a
// service that is not for the network.
const LoopbackPort = 7070

// The index of a family in a pair of addresses or prefixes.
const (
	v4 = iota
	v6
)

// Host is a machine or pod of the lab.
type Host struct {
	Name string
	// Addrs are its IPv4 and its IPv6 address.
	Addrs [2]netip.Addr
	// Spare are further addresses, if it has any.
	Spare []netip.Addr
	// Node is the node that a pod runs on; for a node its own name; empty for
	// clients and the world.
	Node string

	*Namespace
	lastPort atomic.Uint32
}

// Owns reports whether the address is one of the host's.
func (h *Host) Owns(a netip.Addr) bool {
	if a == h.Addrs[v4] || a == h.Addrs[v6] {
		return true
	}
	for _, spare := range h.Spare {
		if a == spare {
			return true
		}
	}
	return false
}

// sourcePort hands out the host's source ports in turn, so that none meets the
// connection tracking entry of an earlier probe. They stay clear of the node
// ports and of everything that listens.
func (h *Host) sourcePort() uint16 {
	const first, count = 33000, 32000
	return uint16(first + h.lastPort.Add(1)%count)
}

// plannedHosts lists the hosts of a lab before they have namespaces.
func plannedHosts() []*Host {
	return []*Host{
		{Name: "world", Addrs: addresses("192.0.2.254", "2001:db8::254")},
		{Name: "node1", Node: "node1", Addrs: addresses("192.0.2.10", "2001:db8::10"),
			Spare: []netip.Addr{netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("2001:db8::11")}},
		{Name: "node2", Node: "node2", Addrs: addresses("192.0.2.20", "2001:db8::20")},
		{Name: "client", Addrs: addresses("198.51.100.10", "2001:db8:1::10")},
		{Name: "client2", Addrs: addresses("203.0.113.10", "2001:db8:2::10")},
		{Name: "pod1", Node: "node1", Addrs: addresses("10.244.1.1", "fd00:10:244:1::1")},
		{Name: "pod2", Node: "node1", Addrs: addresses("10.244.1.2", "fd00:10:244:1::2")},
		{Name: "pod3", Node: "node1", Addrs: addresses("10.244.1.3", "fd00:10:244:1::3")},
		{Name: "remote1", Node: "node2", Addrs: addresses("10.244.2.1", "fd00:10:244:2::1")},
		{Name: "remote2", Node: "node2", Addrs: addresses("10.244.2.2", "fd00:10:244:2::2")},
	}
}

// HostNames lists the names of the hosts of every lab.
func HostNames() []string {
	var names []string
	for _, h := range plannedHosts() {
		names = append(names, h.Name)
	}
	return names
}

// isPod reports whether a host is a pod, not a node.
func (h *Host) isPod() bool { return h.Node != "" && h.Node != h.Name }

func addresses(four, six string) [2]netip.Addr {
	return [2]netip.Addr{netip.MustParseAddr(four), netip.MustParseAddr(six)}
}

func prefixes(four, six string) [2]netip.Prefix {
	return [2]netip.Prefix{netip.MustParsePrefix(four), netip.MustParsePrefix(six)}
}
