package kernelspace

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/kernel/hns"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Protocols by their numbers on the wire.
const (
	protocolTCP = 6
	protocolUDP = 17
)

// balancer is a load balancer that is wanted. It lacks the IDs of endpoints, which HNS knows.
type balancer struct {
	id     hns.GUID
	label  string // of metrics
	at     plan.Key
	to     []plan.Endpoint // empty for the node's own endpoint
	source netip.Addr      // of connections, invalid for that of the client
	flags  hns.BalancerFlag
	port   hns.PortMapping
}

// wantedOf returns the load balancers of a frontend. Without endpoints there are none.
func (d *Dataplane) wantedOf(f *plan.Frontend) (all []balancer) {
	if to := f.Route.Endpoints; len(to) > 0 {
		b := d.newBalancer(f, f.Key, to[0].Port())
		b.to, b.source = to, d.source(to)
		if d.direct(f) {
			b.flags |= hns.DSR
		}
		if f.Kind != plan.ClusterIP {
			b.port.Flags |= hns.ExternalVIP
		}
		if f.Kind == plan.NodePort {
			b.port.Flags |= hns.LocalRoutedVIP
		}
		if f.Affinity != 0 && d.version.Affinity() {
			b.port.DistributionType = hns.PerClient
		}
		all = append(all, b)
	}
	health := healthKey(f)
	if f.HealthPort != 0 && d.frontends[health] == nil { // a port of a Service goes before it
		b := d.newBalancer(f, health, f.HealthPort)
		b.label, b.source = typeHealthCheck, d.source(nil)
		all = append(all, b)
	}
	for i := range all {
		all[i].id = all[i].newID()
	}
	return all
}

// healthKey is where health checks of a load balancer arrive.
func healthKey(f *plan.Frontend) plan.Key {
	return plan.Key{Addr: f.Addr, Port: f.HealthPort, Protocol: model.TCP}
}

// direct reports whether endpoints answer clients directly, with the address that these sent to.
func (d *Dataplane) direct(f *plan.Frontend) bool {
	switch {
	case !d.version.DSR():
		return false
	case f.Kind == plan.ClusterIP:
		return d.DSR
	case f.Kind == plan.LoadBalancerIP && f.PreserveDestination:
		return true
	}
	return f.Masquerade == plan.MasqueradeNever // external traffic policy Local: clients keep their address
}

func (d *Dataplane) newBalancer(f *plan.Frontend, at plan.Key, port uint16) balancer {
	b := balancer{
		label: types[f.Kind], at: at,
		port: hns.PortMapping{Protocol: protocolTCP, InternalPort: port, ExternalPort: at.Port},
	}
	if at.Protocol == model.UDP {
		b.port.Protocol = protocolUDP
	}
	if at.Family() == model.IPv6 {
		b.flags |= hns.IPv6
	}
	if f.PreserveDestination && f.Kind == plan.LoadBalancerIP && d.version.DSR() {
		b.port.Flags |= hns.UseMux | hns.PreserveDestination
	}
	return b
}

// newID returns an ID that follows from all of a load balancer but its endpoints: these can be changed,
// and the rest is another load balancer.
func (b *balancer) newID() hns.GUID {
	return hns.NewID(fmt.Sprintf("load balancer %v to %d source %v flags %d port %d distribution %d",
		b.at, b.port.InternalPort, b.source, b.flags, b.port.Flags, b.port.DistributionType))
}

// document returns the load balancer as HNS is told of it.
func (b *balancer) document(endpoints []hns.GUID) hns.LoadBalancer {
	d := hns.LoadBalancer{ID: b.id, HostComputeEndpoints: slices.Compact(sorted(endpoints)), PortMappings: []hns.PortMapping{b.port}, Flags: b.flags}
	if b.source.IsValid() {
		d.SourceVIP = &b.source
	}
	if !b.at.NodePort() {
		d.FrontendVIPs = []netip.Addr{b.at.Addr}
	}
	return d
}

// sameBalancer reports whether two load balancers lead from the same addresses and ports to the same
// endpoints. The rest is in the ID.
func sameBalancer(a, b *hns.LoadBalancer) bool {
	ports := func(x, y hns.PortMapping) bool {
		return x.Protocol == y.Protocol && x.ExternalPort == y.ExternalPort && x.InternalPort == y.InternalPort
	}
	return slices.Equal(addressesIn(a), addressesIn(b)) && slices.EqualFunc(a.PortMappings, b.PortMappings, ports) &&
		slices.Equal(sorted(a.HostComputeEndpoints), sorted(b.HostComputeEndpoints))
}

// addressesIn returns the addresses of a load balancer, none for all of the node.
func addressesIn(b *hns.LoadBalancer) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(b.FrontendVIPs), func(ip netip.Addr) bool { return !ip.IsValid() })
}

func sorted(ids []hns.GUID) []hns.GUID {
	return slices.SortedFunc(slices.Values(ids), func(x, y hns.GUID) int { return slices.Compare(x[:], y[:]) })
}

// source returns the source address of connections to endpoints, invalid for that of the client. On an
// overlay it is one of the overlay, or that of the node if an endpoint is outside of it.
func (d *Dataplane) source(to []plan.Endpoint) netip.Addr {
	if !d.network.IsOverlay() {
		return netip.Addr{}
	}
	for _, e := range to {
		if node := d.nodeOf(e.Addr()); !e.Local && (!node.IsValid() || node == e.Addr()) {
			return d.settings.PrimaryIP(model.IPv4)
		}
	}
	return d.SourceVIP
}

// provider returns the address of the node that an endpoint of an overlay is made for: this one for an
// address outside of the cluster. On other networks it is invalid.
func (d *Dataplane) provider(ip netip.Addr) netip.Addr {
	if !d.network.IsOverlay() {
		return netip.Addr{}
	}
	if node := d.nodeOf(ip); node.IsValid() {
		return node
	}
	return d.settings.PrimaryIP(model.IPv4)
}

// nodeOf returns the address of the node that an address is on, invalid if it is outside of the cluster.
func (d *Dataplane) nodeOf(ip netip.Addr) netip.Addr { return nodeIn(d.subnets, ip) }

func nodeIn(subnets []hns.RemoteSubnet, ip netip.Addr) netip.Addr {
	for _, s := range subnets {
		if s.ProviderAddress == ip || s.DestinationPrefix.Contains(ip) {
			return s.ProviderAddress
		}
	}
	return netip.Addr{}
}
