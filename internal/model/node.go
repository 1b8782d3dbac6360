package model

import "net/netip"

// Node is the Node object of the machine the proxy runs on.
type Node struct {
	Name string
	UID  string // of the object; "" in manifests without one
	// IPs are the node's addresses, InternalIPs before ExternalIPs, in the
	// order of the object. The first of each family is its primary IP.
	IPs      []netip.Addr
	PodCIDRs []netip.Prefix
	Zone     string // label topology.kubernetes.io/zone
	// Leaving is why load balancers should send the node no new connections,
	// because it is about to be removed; "" if it stays.
	Leaving  string
	Problems []Problem
}

// PrimaryIP returns the first address of the family, or the invalid address.
func (n *Node) PrimaryIP(f Family) netip.Addr { return firstOf(f, n.IPs) }

// ServiceCIDR is a set of ranges that ClusterIPs are allocated from.
type ServiceCIDR struct {
	Name     string
	Prefixes []netip.Prefix
	Problems []Problem
}
