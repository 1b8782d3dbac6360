package model

import (
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
	// LoadBalancerIPs are the ingress IPs of mode VIP.
	LoadBalancerIPs []netip.Addr

	Ports []ServicePort

	InternalPolicy TrafficPolicy
	ExternalPolicy TrafficPolicy

	Algorithm Algorithm
	// AlgorithmChosen says that the Service itself chooses the algorithm, and not the
	// node.
	AlgorithmChosen bool
	// Affinity is the session affinity timeout in seconds, 0 for none.
	Affinity uint32

	// Filtered says that loadBalancerSourceRanges is not empty. SourceRanges
	// holds its valid entries: a filtered Service without a valid range admits
	// no client.
	Filtered     bool
	SourceRanges []netip.Prefix

	HealthCheckNodePort uint16

	// Problems describe the fields that were malformed and left out.
	Problems []Problem
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
	NodePort uint16 // 0 for none
}
