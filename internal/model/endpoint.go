package model

import (
	"net/netip"
	"time"
)

// Slice is an EndpointSlice: endpoints of one Service and one family that
// share their ports.
type Slice struct {
	Name      Name
	UID       string // of the object, for Events; "" in manifests without one
	Service   string // name of the Service, in the slice's namespace
	Family    Family
	Ports     []SlicePort
	Endpoints []Endpoint
	// Weight is that of each endpoint, nil if none was given. Endpoints of
	// weight 0 get no new connections.
	Weight *uint16
	// Trigger is the time of the change in the cluster that the slice was last
	// written for; zero if unknown.
	Trigger  time.Time
	Problems []Problem
}

// ServiceName returns the name of the Service that the slice belongs to.
func (s *Slice) ServiceName() Name { return Name{s.Name.Namespace, s.Service} }

// SlicePort is a port that every endpoint of a slice serves.
type SlicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Endpoint is one address behind a Service.
type Endpoint struct {
	Addr       netip.Addr
	Node       string // name of the node it runs on, empty if unknown
	Hints      *Hints // nil for none; shared between endpoints
	Conditions Conditions
}

// Hints name the zones and nodes whose traffic an endpoint is meant for.
type Hints struct {
	Zones []string
	Nodes []string
}

// Conditions is a set of endpoint conditions. Sources resolve absent
// conditions: an unset ready is ready, an unset serving is as ready, an unset
// terminating is not terminating.
type Conditions uint8

// The endpoint conditions.
const (
	Ready Conditions = 1 << iota
	Serving
	Terminating
)

// Has reports whether all conditions in want are set.
func (c Conditions) Has(want Conditions) bool { return c&want == want }
