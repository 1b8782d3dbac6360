package model

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Name is the namespace and name of an object.
type Name struct {
	Namespace, Name string
}

func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Compare orders names by namespace, then by name.
func (n Name) Compare(o Name) int {
	if c := strings.Compare(n.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(n.Name, o.Name)
}

// TrafficPolicy selects the endpoints that internal or external traffic may
// use.
type TrafficPolicy uint8

// The traffic policies.
const (
	PolicyCluster TrafficPolicy = iota
	PolicyLocal
)

func (p TrafficPolicy) String() string {
	if p == PolicyLocal {
		return "Local"
	}
	return "Cluster"
}

// Service is a Service that this proxy implements. Sources leave out headless
// and ExternalName Services and those of another proxy.
type Service struct {
	Name    Name
	UID     string    // of the object, for Events; "" in manifests without one
	Created time.Time // decides between Services that claim the same address and port

	ClusterIPs  []netip.Addr
	ExternalIPs []netip.Addr
	// LoadBalancerIPs are the ingress IPs of the modes VIP and Router, RoutedIPs those of mode Router:
	// packets to them for which there is no endpoint are left alone, as with PassThrough.
	LoadBalancerIPs, RoutedIPs []netip.Addr

	Ports []ServicePort

	InternalPolicy TrafficPolicy
	ExternalPolicy TrafficPolicy

	Algorithm Algorithm
	// AlgorithmChosen says that the Service itself chooses the algorithm, and not the
	// node.
	AlgorithmChosen bool
	// Affinity is the session affinity timeout in seconds, 0 for none.
	Affinity uint32
	// Eject says whether endpoints that do not answer are left out for a while; nil to do as the node
	// does by default.
	Eject *bool

	// Direct is the annotation that asks for direct return: that clients outside are answered by the node with
	// their endpoint, and not through the one that they asked. It is "" if there is none.
	Direct string

	// Filtered says that loadBalancerSourceRanges is not empty. SourceRanges
	// holds its valid entries: a filtered Service without a valid range admits
	// no client.
	Filtered     bool
	SourceRanges []netip.Prefix
	// FilterAll says that the source ranges restrict the clients of external IPs and node ports,
	// too, and not only those of load balancer IPs.
	FilterAll bool

	// PreserveDestination asks for packets to load balancer IPs that keep this address on their way
	// to endpoints.
	PreserveDestination bool

	// PassThrough says that packets to external addresses for which there is no endpoint are left
	// alone, so that somebody else who has the address can serve them.
	PassThrough bool

	HealthCheckNodePort uint16

	// Released says that another proxy serves the Service from now on, too: it leaves soon.
	Released bool

	// Problems describe the fields that were malformed and left out.
	Problems []Problem
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
	NodePort uint16 // 0 for none
	// Ranges are further ports, which lead to the same endpoints, each to the port of its own number.
	// They are without overlaps.
	Ranges []PortRange
}

// PortRange is a range of ports, from First to Last inclusive.
type PortRange struct {
	First, Last uint16
}

func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Contains reports whether a port is in the range.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// Overlaps reports whether two ranges have a port in common.
func (r PortRange) Overlaps(o PortRange) bool { return r.First <= o.Last && o.First <= r.Last }
