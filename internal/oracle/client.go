package oracle

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// client is the sender of a packet.
type client uint8

const (
	outside client = iota
	pod
	node
)

func (t client) String() string {
	return [...]string{"a client outside", "a pod", "the node"}[t]
}

// client returns the sender of the packet. The detector decides first: an
// address of the node in a pod range, such as a bridge's, counts as a pod.
func (w World) client(p Packet) client {
	switch {
	case w.isPod(p):
		return pod
	case w.isNode(p.Source):
		return node
	}
	return outside
}

// isPod reports whether the sender is local by the configured detection: in a
// cluster CIDR, in a pod CIDR of this node, or behind the bridge or an
// interface with the prefix. Without a detector no sender is a pod.
func (w World) isPod(p Packet) bool {
	c := w.Config
	switch c.DetectLocal {
	case plan.DetectBridgeInterface:
		return c.BridgeInterface != "" && p.Interface == c.BridgeInterface
	case plan.DetectInterfaceNamePrefix:
		return c.InterfaceNamePrefix != "" && strings.HasPrefix(p.Interface, c.InterfaceNamePrefix)
	}
	return anyContains(w.podRanges(), p.Source)
}

// hasDetector reports whether pods of the family can be recognised at all. A
// detector by address without a range of a family is none for that family.
func (w World) hasDetector(f model.Family) bool {
	c := w.Config
	switch c.DetectLocal {
	case plan.DetectBridgeInterface:
		return c.BridgeInterface != ""
	case plan.DetectInterfaceNamePrefix:
		return c.InterfaceNamePrefix != ""
	}
	return slices.ContainsFunc(w.podRanges(), func(r netip.Prefix) bool {
		return model.FamilyOf(r.Addr()) == f
	})
}

// podRanges returns the addresses of pods, if pods are detected by address.
func (w World) podRanges() []netip.Prefix {
	switch {
	case w.Config.DetectLocal == plan.DetectClusterCIDR:
		return w.Config.ClusterCIDRs
	case w.Config.DetectLocal == plan.DetectNodeCIDR && w.Node != nil:
		return w.Node.PodCIDRs
	}
	return nil
}

func (w World) isNode(a netip.Addr) bool {
	return a.IsLoopback() || slices.Contains(w.nodeAddresses(), a)
}

// nodeAddresses returns those of the machine and those of its Node object.
func (w World) nodeAddresses() []netip.Addr {
	if w.Node == nil {
		return w.HostIPs
	}
	return slices.Concat(w.HostIPs, w.Node.IPs)
}

// servesNodePorts reports whether node ports answer on an address. The settings
// add up; if there are none, the primary IPs serve. Selecting all of a family
// means all local addresses according to the routing table, or only those on
// interfaces if the mode must know them, and so do prefixes of the other family alone.
func (w World) servesNodePorts(a netip.Addr) bool {
	c := w.Config.NodePortAddresses
	f := model.FamilyOf(a)
	ofFamily := func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f }
	everything := func(p netip.Prefix) bool { return ofFamily(p) && p.Bits() == 0 }
	unmentioned := !c.Primary && len(c.Prefixes) > 0 && !slices.ContainsFunc(c.Prefixes, ofFamily)
	if c.All || unmentioned || slices.ContainsFunc(c.Prefixes, everything) {
		return slices.Contains(w.HostIPs, a) || anyContains(w.LocalRoutes, a) && !w.Config.KnownNodePortIPs
	}
	nothingSet := !c.All && !c.Primary && len(c.Prefixes) == 0
	if (c.Primary || nothingSet) && a == w.primaryIP(f) {
		return true
	}
	return slices.Contains(w.HostIPs, a) && anyContains(c.Prefixes, a)
}

// primaryIP returns the first of the family in the Node object; without a Node
// object it is the first global unicast address of the machine.
func (w World) primaryIP(f model.Family) netip.Addr {
	if w.Node != nil {
		return w.Node.PrimaryIP(f)
	}
	for _, ip := range w.HostIPs {
		if model.FamilyOf(ip) == f && ip.IsGlobalUnicast() {
			return ip
		}
	}
	return netip.Addr{}
}

func anyContains(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}
