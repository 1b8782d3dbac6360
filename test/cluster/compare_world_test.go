package cluster

import (
	"cmp"
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/oracle"
)

// definite returns the world without what upstream has no answer to, or an answer
// that depends on the order of its maps:
//
//   - two Services that claim one address, port and protocol;
//   - external and load balancer IPs that are ClusterIPs with the same port;
//   - endpoints about which slices disagree, other than that a pod is running in
//     one and terminating in the other;
//   - addresses that no API server accepts for an endpoint.
func definite(w oracle.World) oracle.World {
	w.Services = withoutConflicts(w.Services)
	w.Slices = withoutDisputes(w.Slices)
	return w
}

// claim is something that only one Service can have. The address of a node port is none.
type claim struct {
	addr     netip.Addr
	port     uint16
	protocol model.Protocol
}

func withoutConflicts(services []*model.Service) []*model.Service {
	services = slices.SortedFunc(slices.Values(services), func(a, b *model.Service) int { return a.Name.Compare(b.Name) })
	taken := map[claim]*model.Service{}
	for _, s := range services {
		for _, a := range s.ClusterIPs {
			for _, p := range s.Ports {
				taken[claim{a, p.Port, p.Protocol}] = nil // not even the Service itself can have it twice
			}
		}
	}
	for i, old := range services {
		s := *old
		free := func(c claim) bool { owner, ok := taken[c]; return !ok || owner == old }
		unavailable := func(a netip.Addr) bool {
			return slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool { return !free(claim{a, p.Port, p.Protocol}) })
		}
		s.ExternalIPs = slices.DeleteFunc(slices.Clone(s.ExternalIPs), unavailable)
		s.LoadBalancerIPs = slices.DeleteFunc(slices.Clone(s.LoadBalancerIPs), unavailable)
		s.Ports = slices.Clone(s.Ports)
		for j, p := range s.Ports {
			for _, a := range slices.Concat(s.ExternalIPs, s.LoadBalancerIPs) {
				taken[claim{a, p.Port, p.Protocol}] = old
			}
			at := claim{port: p.NodePort, protocol: p.Protocol}
			if !free(at) {
				s.Ports[j].NodePort = 0
			}
			taken[at] = old
		}
		services[i] = &s
	}
	return services
}

// withoutDisputes makes all slices of a Service agree about an endpoint.
func withoutDisputes(list []*model.Slice) []*model.Slice {
	type key struct {
		service model.Name
		addr    netip.Addr
	}
	first := map[key]model.Conditions{} // of those not terminating, if there is one
	list = slices.SortedFunc(slices.Values(list), func(a, b *model.Slice) int { return a.Name.Compare(b.Name) })
	for _, s := range list {
		for _, e := range s.Endpoints {
			k := key{s.ServiceName(), e.Addr}
			known, ok := first[k]
			if !ok || known.Has(model.Terminating) && !e.Conditions.Has(model.Terminating) {
				first[k] = e.Conditions
			}
		}
	}
	for i, old := range list {
		s := *old
		s.Endpoints = nil
		for _, e := range old.Endpoints {
			believed := first[key{s.ServiceName(), e.Addr}]
			replaced := believed.Has(model.Ready) && !believed.Has(model.Terminating) && e.Conditions.Has(model.Terminating)
			if !replaced {
				e.Conditions = believed
			}
			if !e.Addr.IsLoopback() && !e.Addr.IsUnspecified() && !e.Addr.IsLinkLocalUnicast() && !e.Addr.IsMulticast() {
				s.Endpoints = append(s.Endpoints, e)
			}
		}
		list[i] = &s
	}
	return list
}

// after returns the world after a change. The addresses of the machine and of the
// Node object stay, because upstream exits when these change.
func after(w oracle.World, events []model.Event) oracle.World {
	next := w.After(events...)
	node := *w.Node
	node.Zone = cmp.Or(next.Node, &node).Zone
	next.Node, next.HostIPs = &node, w.HostIPs
	return next
}
