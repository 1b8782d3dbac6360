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

// Problem is a defect of an object, reported to its owner. The names of its fields
// in JSON are an interface and never change.
type Problem struct {
	Object string `json:"object"`           // kind and name, "Service default/web"
	Field  string `json:"field,omitempty"`  // path of the field, "spec.ports[0].port"
	Reason string `json:"reason"`           // what is wrong
	Remedy string `json:"remedy,omitempty"` // what to do about it
	// Malformed means that an API server would have refused the value.
	Malformed bool `json:"-"`
}

// NameIn parses an object of a Problem: "Service default/web" of the kind "Service".
func NameIn(object, kind string) (Name, bool) {
	full, ok := strings.CutPrefix(object, kind+" ")
	namespace, name, found := strings.Cut(full, "/")
	return Name{Namespace: namespace, Name: name}, ok && found
}

func (p Problem) String() string {
	s := p.Object + ": " + p.What()
	if p.Remedy != "" {
		s += " (" + p.Remedy + ")"
	}
	return s
}

// What is what is wrong with the object, without its name and the remedy.
func (p Problem) What() string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}
