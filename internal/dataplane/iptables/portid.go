package iptables

import (
	"cmp"
	"net/netip"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// portID identifies a port of a Service in one family.
type portID struct {
	service  model.Name
	port     string
	protocol model.Protocol
	family   model.Family
}

func idOf(f *plan.Frontend) portID { return portID{f.Service, f.Port, f.Protocol, f.Family()} }

// hashed is the name of a chain or list of the service port.
func (id portID) hashed(prefix string, more ...string) string {
	parts := append([]string{id.String(), protocolName(id.protocol)}, more...)
	return hashed(prefix, parts...)
}

// clients is the name of the list of clients that have an endpoint. The kernel keeps
// it while there is a rule with the name.
func (id portID) clients(e netip.AddrPort) string { return id.hashed(endpointPrefix, e.String()) }

func (id portID) String() string {
	if id.port == "" {
		return id.service.String()
	}
	return id.service.String() + ":" + id.port
}

func (id portID) compare(o portID) int {
	return cmp.Or(
		cmp.Compare(id.service.Namespace, o.service.Namespace),
		cmp.Compare(id.service.Name, o.service.Name),
		cmp.Compare(id.port, o.port),
		cmp.Compare(id.protocol, o.protocol),
		cmp.Compare(id.family, o.family))
}
