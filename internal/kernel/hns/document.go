package hns

import (
	"encoding/json"
	"net/netip"
	"strings"
)

// Schema is the version of the documents.
type Schema struct{ Major, Minor int }

// schema is the one that all documents here have.
var schema = Schema{Major: 2}

// Network is a network, as far as it is of interest here.
type Network struct {
	ID       GUID
	Name     string
	Type     string
	Policies []Policy
}

// The types of networks on which Services are served.
const (
	L2Bridge = "L2Bridge"
	L2Tunnel = "L2Tunnel"
	Overlay  = "Overlay"
)

// IsOverlay reports whether packets to other nodes are encapsulated.
func (n *Network) IsOverlay() bool { return strings.EqualFold(n.Type, Overlay) }

// Policy is a policy of a network or an endpoint.
type Policy struct {
	Type     string
	Settings json.RawMessage
}

// RemoteSubnet is where the pods of another node are: behind the address of that node.
type RemoteSubnet struct {
	DestinationPrefix netip.Prefix
	ProviderAddress   netip.Addr
}

// RemoteSubnets returns those of an overlay. What cannot be read is left out.
func (n *Network) RemoteSubnets() (all []RemoteSubnet) {
	for _, p := range n.Policies {
		var s RemoteSubnet
		if p.Type == "RemoteSubnetRoute" && json.Unmarshal(p.Settings, &s) == nil {
			all = append(all, s)
		}
	}
	return all
}

// Endpoint is a pod on this node, or an address elsewhere that load balancers lead to.
type Endpoint struct {
	ID                 GUID
	Name               string       `json:",omitempty"`
	HostComputeNetwork *GUID        `json:",omitempty"`
	Policies           []Policy     `json:",omitempty"`
	IPConfigurations   []IPConfig   `json:"IpConfigurations,omitempty"`
	MACAddress         string       `json:"MacAddress,omitempty"`
	Flags              EndpointFlag `json:",omitempty"`
	SchemaVersion      Schema
}

// IPConfig is an address of an endpoint.
type IPConfig struct {
	IPAddress netip.Addr `json:"IpAddress"`
}

// EndpointFlag says what an endpoint is.
type EndpointFlag uint32

// RemoteEndpoint is the flag of an address elsewhere.
const RemoteEndpoint EndpointFlag = 1

// Remote reports whether an endpoint is elsewhere.
func (e *Endpoint) Remote() bool { return e.Flags&RemoteEndpoint != 0 }

// ProviderAddress returns the policy that an endpoint of an overlay is on the node with an address.
func ProviderAddress(node netip.Addr) Policy {
	settings, _ := json.Marshal(struct{ ProviderAddress netip.Addr }{node}) // an address is text
	return Policy{Type: "ProviderAddress", Settings: settings}
}

// LoadBalancer leads connections to an address and port to endpoints.
type LoadBalancer struct {
	ID                   GUID
	HostComputeEndpoints []GUID
	// SourceVIP is the source address of connections that come from an overlay; invalid for none.
	SourceVIP *netip.Addr `json:",omitempty"`
	// FrontendVIPs are the addresses, none for all of the node.
	FrontendVIPs  []netip.Addr `json:",omitempty"`
	PortMappings  []PortMapping
	SchemaVersion Schema
	Flags         BalancerFlag `json:",omitempty"`
}

// BalancerFlag says how a load balancer works.
type BalancerFlag uint32

// The flags of load balancers.
const (
	DSR  BalancerFlag = 1 // endpoints answer clients directly
	IPv6 BalancerFlag = 2
)

// PortMapping is a port of a load balancer.
type PortMapping struct {
	Protocol         uint32
	InternalPort     uint16 // of the endpoints
	ExternalPort     uint16
	DistributionType Distribution `json:",omitempty"`
	Flags            PortFlag     `json:",omitempty"`
}

// Distribution is what decides on the endpoint of a connection.
type Distribution uint32

// The distributions.
const (
	PerConnection Distribution = 0
	PerClient     Distribution = 2
)

// PortFlag says how a port of a load balancer works.
type PortFlag uint32

// The flags of ports.
const (
	LocalRoutedVIP      PortFlag = 2  // for the addresses of the node
	UseMux              PortFlag = 4  // packets come from a multiplexer
	PreserveDestination PortFlag = 8  // endpoints see the address that clients sent to
	ExternalVIP         PortFlag = 16 // for clients outside
)
