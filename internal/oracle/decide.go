package oracle

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// Decide returns what must happen to the packet.
func Decide(world World, packet Packet) Verdict {
	// Node ports on loopback are the proxy's own, which does not affect packets.
	if packet.Destination.IsLoopback() {
		return Verdict{Action: Pass, Why: "loopback is not a frontend"}
	}
	if world.Config.NoIPv6 && packet.Destination.Is6() {
		return Verdict{Action: Pass, Why: "the node does no IPv6"}
	}
	if f, ok := world.frontendOf(packet); ok {
		return world.connect(f, packet)
	}
	return world.miss(packet)
}

// miss decides about a packet to no frontend.
func (w World) miss(packet Packet) Verdict {
	if w.Config.FrontendsOnly {
		return Verdict{Action: Pass, Why: "no Service has this address and port, and the mode looks no further"}
	}
	// A ClusterIP belongs to a Service, which refuses all other ports.
	if owner := w.ownerOfClusterIP(packet.Destination); owner != nil {
		return Verdict{Action: Reject, Service: owner.Name,
			Why: "no such port on the ClusterIP of " + owner.Name.String()}
	}
	if owner := w.routesToNode(packet.Destination); owner != nil {
		return Verdict{Action: Reject, Service: owner.Name,
			Why: "no such port on an address that is led to the node for " + owner.Name.String()}
	}
	// The address is unused, and forwarding the packet could make it loop.
	for _, cidr := range w.ServiceCIDRs {
		if anyContains(cidr.Prefixes, packet.Destination) {
			return Verdict{Action: Drop, Why: "in a service CIDR, but the ClusterIP of no Service"}
		}
	}
	return Verdict{Action: Pass, Why: "no Service has this address and port"}
}

// kind is the field of a Service that a frontend comes from, in the order in
// which the fields of one Service win when they name the same address.
type kind uint8

const (
	clusterIP kind = iota
	loadBalancerIP
	externalIP
	nodePort
)

func (k kind) String() string {
	return [...]string{"ClusterIP", "load balancer IP", "external IP", "node port"}[k]
}

// frontend is an address and port at which a service port answers.
type frontend struct {
	service *model.Service
	port    model.ServicePort
	kind    kind
	// ports are those of a range; none for a single port.
	ports model.PortRange
}

func (f frontend) isRange() bool { return f.ports != model.PortRange{} }

func (f frontend) String() string { return f.kind.String() + " of " + f.service.Name.String() }

// frontendOf finds the frontend that the packet is for among all that claim it.
// A specific address wins over node ports; then the first in the order of kinds;
// then the older Service.
func (w World) frontendOf(p Packet) (frontend, bool) {
	for _, kinds := range [][]kind{{clusterIP, loadBalancerIP, externalIP}, {nodePort}} {
		var claims []frontend
		for _, s := range w.Services {
			for _, port := range s.Ports {
				for _, k := range kinds {
					if f := (frontend{service: s, port: port, kind: k}); w.claims(f, p) {
						claims = append(claims, f)
					}
				}
			}
		}
		if len(claims) > 0 {
			return slices.MinFunc(claims, func(a, b frontend) int {
				return cmp.Or(cmp.Compare(a.kind, b.kind), byAge(a.service, b.service))
			}), true
		}
	}
	return w.rangeOf(p)
}

// rangeOf finds the range that the packet is for, where no single port is. Of ranges that overlap at an
// address those of the lower kinds and older Services are served, and none that overlaps one of these.
func (w World) rangeOf(p Packet) (frontend, bool) {
	var claims []frontend
	for _, s := range w.Services {
		if !w.canRange(s) {
			continue
		}
		for _, port := range s.Ports {
			for _, k := range []kind{clusterIP, loadBalancerIP, externalIP} {
				for _, r := range port.Ranges {
					f := frontend{s, port, k, r}
					at := p
					at.Port = r.First
					if w.claims(f, at) {
						claims = append(claims, f)
					}
				}
			}
		}
	}
	slices.SortStableFunc(claims, func(a, b frontend) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), byAge(a.service, b.service))
	})
	var served []frontend
	for _, f := range claims {
		if !slices.ContainsFunc(served, func(o frontend) bool { return o.ports.Overlaps(f.ports) }) {
			served = append(served, f)
		}
	}
	i := slices.IndexFunc(served, func(f frontend) bool { return f.ports.Contains(p.Port) })
	if i < 0 {
		return frontend{}, false
	}
	return served[i], true
}

// canRange reports whether ranges of a Service are served at all.
func (w World) canRange(s *model.Service) bool {
	algorithm := s.Algorithm
	if algorithm == model.Random && !s.AlgorithmChosen {
		algorithm = w.Config.DefaultAlgorithm
	}
	if algorithm != model.Random && !w.Config.Algorithms.Has(algorithm) {
		algorithm = model.Random // which is used instead
	}
	return w.Config.PortRanges && s.Affinity == 0 && algorithm != model.Maglev && algorithm != model.LeastConnections
}

// byAge orders Services by creation; one without a creation time is the oldest.
func byAge(a, b *model.Service) int {
	return cmp.Or(a.Created.Compare(b.Created), a.Name.Compare(b.Name))
}

// claims reports whether the packet is addressed to the frontend. A Service has
// external frontends only in the families of its ClusterIPs.
func (w World) claims(f frontend, p Packet) bool {
	if f.port.Protocol != p.Protocol || !hasFamily(f.service, model.FamilyOf(p.Destination)) {
		return false
	}
	number := f.port.Port
	if f.isRange() {
		number = f.ports.First
	}
	switch f.kind {
	case clusterIP:
		return number == p.Port && slices.Contains(f.service.ClusterIPs, p.Destination)
	case loadBalancerIP:
		return number == p.Port && slices.Contains(f.service.LoadBalancerIPs, p.Destination)
	case externalIP:
		return number == p.Port && slices.Contains(f.service.ExternalIPs, p.Destination) &&
			!w.Config.NoExternalIPs
	}
	return f.port.NodePort != 0 && f.port.NodePort == p.Port && w.servesNodePorts(p.Destination)
}

func hasFamily(s *model.Service, family model.Family) bool {
	return slices.ContainsFunc(s.ClusterIPs, func(a netip.Addr) bool {
		return model.FamilyOf(a) == family
	})
}

// ownerOfClusterIP returns the oldest Service with that ClusterIP, nil for
// none.
func (w World) ownerOfClusterIP(a netip.Addr) *model.Service {
	owners := without(w.Services, func(s *model.Service) bool { return !slices.Contains(s.ClusterIPs, a) })
	if len(owners) == 0 {
		return nil
	}
	return slices.MinFunc(owners, byAge)
}

// routesToNode returns a Service that the kernel's balancer serves at an external address that
// is not the node's own: all ports of it come to the node then.
func (w World) routesToNode(a netip.Addr) *model.Service {
	if w.Config.Balancer.Name == "" || slices.Contains(w.HostIPs, a) || anyContains(w.LocalRoutes, a) {
		return nil
	}
	for _, s := range w.Services {
		for _, port := range s.Ports {
			f, ok := w.frontendOf(Packet{Destination: a, Port: port.Port, Protocol: port.Protocol})
			if ok && (f.kind == loadBalancerIP || f.kind == externalIP) && w.balanced(f, a) {
				return f.service
			}
		}
	}
	return nil
}

// balanced reports whether the kernel's balancer chooses the endpoints of an external frontend.
// It can neither keep session affinity exactly nor hash as other modes do, nor choose at random,
// and cannot lead the node's packets to the node. It would take packets that are to be left alone.
func (w World) balanced(f frontend, a netip.Addr) bool {
	s, family := f.service, model.FamilyOf(a)
	here := func(e endpoint) bool { return slices.Contains(w.HostIPs, e.Addr) }
	switch {
	case f.leavesAlone(a):
		return false
	case s.Affinity > 0 || slices.ContainsFunc(w.clusterPool(w.endpointsOf(s, f.port, family)), here):
		return false
	case s.Algorithm == model.Random:
		return !s.AlgorithmChosen
	}
	return s.Algorithm == model.RoundRobin || s.Algorithm == model.LeastConnections
}

// leavesAlone reports whether packets to an address of the frontend are left alone if there is no endpoint.
func (f frontend) leavesAlone(a netip.Addr) bool {
	return f.service.PassThrough && f.kind != clusterIP || f.kind == loadBalancerIP && slices.Contains(f.service.RoutedIPs, a)
}

// connect decides about a packet that is addressed to a frontend.
func (w World) connect(f frontend, p Packet) Verdict {
	v := Verdict{Service: f.service.Name}
	// The filter comes first: a client that may not connect does not learn whether
	// there are endpoints.
	filtered := f.kind == loadBalancerIP || f.service.FilterAll && f.kind != clusterIP
	if filtered && !w.admits(f, p) {
		v.Action, v.Why = Drop, fmt.Sprintf("%s, whose source ranges lack %s", f, p.Source)
		return v
	}

	who := w.client(p)
	everywhere := w.endpointsOf(f.service, f.port, model.FamilyOf(p.Destination))
	pool, name := w.clusterPool(everywhere), "cluster pool"
	if f.usesLocalPool(who) {
		pool, name = w.localPool(everywhere), "local pool"
	}
	v.Why = fmt.Sprintf("%s, reached by %s: the %s", f, who, name)
	switch {
	case len(pool) == 0 && f.leavesAlone(p.Destination):
		as := w.miss(p)
		v.Action, v.Why = as.Action, v.Why+" is empty, and the Service wants it as if it were not there: "+as.Why
	case len(pool) > 0:
		v.Action = Forward
		v.Affinity = f.service.Affinity
		v.MasqueradedTo = map[netip.AddrPort]bool{}
		for _, e := range pool {
			at := e.addrPort
			if f.isRange() { // connections keep their port
				at = netip.AddrPortFrom(e.Addr, p.Port)
			}
			if _, again := v.MasqueradedTo[at]; !again {
				v.Endpoints = append(v.Endpoints, at)
			}
			v.MasqueradedTo[at] = w.masquerades(f, who, p, e)
		}
	case len(everywhere) > 0:
		// This is for the load balancer's health check to detect, not the client.
		v.Action, v.Why = Drop, v.Why+" is empty, but there are endpoints elsewhere"
	default:
		v.Action, v.Why = Reject, v.Why+" is empty, and so is every other"
	}
	return v
}

// admits reports whether the source ranges of the Service admit the packet.
// Without a list all sources are admitted, with a list without a valid range
// none, and a list with ranges of the other family only does not restrict this
// one. If the ranges admit this node, a packet from the load balancer's IP
// itself is the node's own too: it has that IP and picked it as source.
func (w World) admits(f frontend, p Packet) bool {
	s := f.service
	if !s.Filtered || anyContains(s.SourceRanges, p.Source) {
		return true
	}
	otherFamily := func(r netip.Prefix) bool { return model.FamilyOf(r.Addr()) != model.FamilyOf(p.Source) }
	if len(s.SourceRanges) > 0 && len(without(s.SourceRanges, otherFamily)) == 0 {
		return true
	}
	allowsNode := slices.ContainsFunc(w.nodeAddresses(), func(a netip.Addr) bool {
		return model.FamilyOf(a) == model.FamilyOf(p.Source) && anyContains(s.SourceRanges, a)
	})
	return f.kind != nodePort && p.Source == p.Destination && allowsNode
}

// usesLocalPool reports whether only endpoints on this node may be used. A
// ClusterIP uses the internal traffic policy for all clients. An external
// frontend uses the external one, but only for clients from outside: a pod or
// the node gets what a load balancer would have found for it.
func (f frontend) usesLocalPool(who client) bool {
	if f.kind == clusterIP {
		return f.service.InternalPolicy == model.PolicyLocal
	}
	return f.service.ExternalPolicy == model.PolicyLocal && who == outside
}

func (w World) masquerades(f frontend, who client, p Packet, e endpoint) bool {
	hairpin := e.Addr == p.Source
	if hairpin {
		return true
	}
	if f.kind == clusterIP {
		return w.Config.MasqueradeAll || who != pod && w.hasDetector(model.FamilyOf(p.Destination))
	}
	if f.service.ExternalPolicy == model.PolicyCluster {
		return true
	}
	return who == node
}
