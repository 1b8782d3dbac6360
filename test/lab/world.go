//go:build linux

package lab

import (
	"net/netip"

	"sluice/internal/oracle/randomworld"
)

// Topology describes the lab to the generator of random worlds. All its addresses
// can be reached, and all its clients can connect.
func (l *Lab) Topology() randomworld.Topology {
	top := randomworld.Topology{
		NodeName:           "node1",
		PodCIDRs:           Node1PodCIDRs[:],
		ClusterCIDRs:       ClusterCIDRs[:],
		Uplink:             "eth0",
		PodInterfacePrefix: PodInterfacePrefix,
		EndpointPorts:      EchoPorts,
		NodePorts:          randomworld.PortRange{First: 30000, Last: 30007},
		ServiceCIDR:        prefixList("10.96.0.0/24", "fd00:10:96::/120"),
		ClusterIPRange:     prefixList("10.96.0.0/25", "fd00:10:96::/121"),
		ExternalIPRange:    prefixList("198.18.0.0/28", "2001:db8:18::/124"),
		LoadBalancerRange:  prefixList("198.18.0.64/28", "2001:db8:18::40/124"),
	}
	for _, h := range l.Hosts() {
		for _, a := range h.Addrs {
			switch {
			case h.Name == "node1":
				top.NodeIPs = append(top.NodeIPs, a)
			case h.Node == "node1":
				in := h.Name
				if h.Name == "pod3" {
					in = PodBridge
				}
				top.LocalPods = append(top.LocalPods, randomworld.Pod{Addr: a, Node: h.Node, Interface: in})
			case h.Node == "node2" && h.Name != "node2":
				top.RemotePods = append(top.RemotePods, randomworld.Pod{Addr: a, Node: h.Node})
			case h.Name == "client", h.Name == "client2":
				top.OutsideIPs = append(top.OutsideIPs, a)
			}
		}
		if h.Name == "node1" {
			top.NodeIPs = append(top.NodeIPs, h.Spare...)
		}
	}
	return top
}

func prefixList(four, six string) []netip.Prefix {
	pair := prefixes(four, six)
	return pair[:]
}
