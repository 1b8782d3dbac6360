package randomworld

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/model"
	"sluice/internal/oracle"
)

// servicePorts are the ports that Services have; few, so that they collide.
var servicePorts = []model.ServicePort{
	{Name: "http", Protocol: model.TCP, Port: 80},
	{Name: "http-udp", Protocol: model.UDP, Port: 80},
	{Name: "dns", Protocol: model.UDP, Port: 53},
	{Name: "dns-tcp", Protocol: model.TCP, Port: 53},
	{Name: "sctp", Protocol: model.SCTP, Port: 80},
	{Name: "web", Protocol: model.TCP, Port: 8080},
}

func (d drawer) service(w oracle.World, name model.Name) *model.Service {
	s := &model.Service{
		Name:       name,
		Created:    d.created(),
		ClusterIPs: d.clusterIPs(w),
	}
	s.Ports = d.ports()
	d.portRanges(s.Ports)
	s.ExternalIPs = d.externalIPs(w, s)
	s.LoadBalancerIPs = d.loadBalancerIPs(s)
	s.RoutedIPs = d.routedIPs(s)
	s.InternalPolicy = d.policy()
	s.ExternalPolicy = d.policy()
	s.Affinity = d.affinity()
	s.Algorithm = d.algorithm()
	s.AlgorithmChosen = s.Algorithm != model.Random
	s.Filtered, s.SourceRanges = d.sourceRanges()
	s.FilterAll = d.filterAll()
	s.PassThrough = d.passThrough()
	return s
}

// created is one of a few times, so that Services can be of the same age.
func (d drawer) created() time.Time {
	if d.oneIn(6) {
		return time.Time{}
	}
	return time.Unix(1_700_000_000+int64(d.IntN(4)), 0).UTC()
}

func (d drawer) policy() model.TrafficPolicy {
	return pick(d.Rand, []model.TrafficPolicy{model.PolicyCluster, model.PolicyLocal})
}

func (d drawer) affinity() uint32 {
	return pick(d.Rand, []uint32{0, 0, 0, 60, 10800})
}

// routedIPs are some of the load balancer IPs.
func (d drawer) routedIPs(s *model.Service) []netip.Addr {
	if len(s.LoadBalancerIPs) < 2 || !d.Annotations {
		return nil
	}
	return s.LoadBalancerIPs[1:]
}

func (d drawer) passThrough() bool { return d.Annotations && d.oneIn(4) }

func (d drawer) filterAll() bool { return d.Annotations && d.oneIn(3) }

func (d drawer) algorithm() model.Algorithm {
	if !d.Annotations || !d.oneIn(4) {
		return model.Random
	}
	// Maglev is rare because its tables are large.
	return pick(d.Rand, []model.Algorithm{model.RoundRobin, model.RoundRobin, model.SourceHash, model.SourceHash, model.Maglev, model.LeastConnections})
}

// clusterIPs returns one or two unused addresses of different families.
func (d drawer) clusterIPs(w oracle.World) []netip.Addr {
	families := d.families()
	if d.oneIn(2) {
		families = some(d.Rand, families, 1)
	}
	var out []netip.Addr
	for _, f := range some(d.Rand, families, 2) {
		free := slices.DeleteFunc(firstAddrs(f, d.ClusterIPRange, 24), func(a netip.Addr) bool {
			return slices.ContainsFunc(w.Services, func(s *model.Service) bool {
				return slices.Contains(s.ClusterIPs, a)
			})
		})
		if len(free) > 0 {
			out = append(out, pick(d.Rand, free))
		}
	}
	return out
}

// ports returns one to three ports. A single one may have no name.
func (d drawer) ports() []model.ServicePort {
	out := some(d.Rand, servicePorts, 1+d.IntN(3))
	for i := range out {
		out[i].NodePort = d.nodePort(out[:i], out[i].Protocol)
	}
	if len(out) == 1 && d.oneIn(3) {
		out[0].Name = ""
	}
	return out
}

// portRanges gives some ports ranges of the few ports that endpoints answer on, so that they
// collide with each other and with single ports.
func (d drawer) portRanges(ports []model.ServicePort) {
	taken := map[model.Protocol][]model.PortRange{}
	for i := range ports {
		p := &ports[i]
		p.Ranges = nil
		if !d.Annotations || len(d.EndpointPorts) == 0 || !d.oneIn(4) || p.Protocol == model.SCTP {
			continue
		}
		a, b := pick(d.Rand, d.EndpointPorts), pick(d.Rand, d.EndpointPorts)
		r := model.PortRange{First: min(a, b), Last: max(a, b)}
		if slices.ContainsFunc(taken[p.Protocol], r.Overlaps) {
			continue
		}
		taken[p.Protocol] = append(taken[p.Protocol], r)
		p.Ranges = []model.PortRange{r}
	}
}

// nodePort returns a node port that the Service's other ports do not have, or
// none. Other Services may have it.
func (d drawer) nodePort(others []model.ServicePort, protocol model.Protocol) uint16 {
	if d.oneIn(3) || d.NodePorts.First == 0 || d.NodePorts.Last < d.NodePorts.First {
		return 0
	}
	port := d.NodePorts.First + uint16(d.IntN(int(d.NodePorts.Last-d.NodePorts.First)+1))
	taken := slices.ContainsFunc(others, func(o model.ServicePort) bool {
		return o.Protocol == protocol && o.NodePort == port
	})
	if taken {
		return 0
	}
	return port
}

// externalIPs draws from a few addresses that all Services share, and at times
// an address of the node, a load balancer or a ClusterIP.
func (d drawer) externalIPs(w oracle.World, s *model.Service) []netip.Addr {
	var out []netip.Addr
	for _, f := range model.Families {
		if d.oneIn(2) {
			out = append(out, some(d.Rand, firstAddrs(f, d.ExternalIPRange, 2), 1)...)
		}
		if d.oneIn(5) {
			strange := slices.Concat(addrsOf(f, d.NodeIPs), firstAddrs(f, d.LoadBalancerRange, 2),
				addrsOf(f, s.ClusterIPs), firstAddrs(f, d.ServiceCIDR, 30))
			for _, other := range w.Services {
				strange = append(strange, addrsOf(f, other.ClusterIPs)...)
			}
			out = append(out, some(d.Rand, strange, 1)...)
		}
	}
	return distinct(out)
}

func (d drawer) loadBalancerIPs(s *model.Service) []netip.Addr {
	var out []netip.Addr
	for _, f := range model.Families {
		if d.oneIn(2) {
			out = append(out, some(d.Rand, firstAddrs(f, d.LoadBalancerRange, 3), 1+d.IntN(2))...)
		}
		if d.oneIn(8) {
			strange := slices.Concat(addrsOf(f, d.NodeIPs), addrsOf(f, s.ExternalIPs))
			out = append(out, some(d.Rand, strange, 1)...)
		}
	}
	return distinct(out)
}

// sourceRanges returns a filter: usually none, else around addresses of
// clients. A filter without ranges is one whose entries were all malformed.
func (d drawer) sourceRanges() (filtered bool, ranges []netip.Prefix) {
	if !d.oneIn(3) {
		return false, nil
	}
	if d.oneIn(5) {
		return true, nil
	}
	clients := slices.Concat(d.OutsideIPs, d.NodeIPs)
	for _, p := range slices.Concat(d.LocalPods, d.RemotePods) {
		clients = append(clients, p.Addr)
	}
	for _, a := range some(d.Rand, clients, 1+d.IntN(3)) {
		bits := pick(d.Rand, []int{a.BitLen(), a.BitLen(), a.BitLen() - 1, a.BitLen() - 8, 0})
		ranges = append(ranges, netip.PrefixFrom(a, bits).Masked())
	}
	return true, ranges
}

func distinct(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// renamed returns the slice port for a service port, occasionally with a wrong
// name.
func (d drawer) renamed(p model.ServicePort) model.SlicePort {
	out := model.SlicePort{Name: p.Name, Protocol: p.Protocol, Port: pick(d.Rand, d.EndpointPorts)}
	switch d.IntN(20) {
	case 0:
		out.Name = strings.ToUpper(p.Name) + "x"
	case 1:
		out.Protocol = pick(d.Rand, []model.Protocol{model.TCP, model.UDP, model.SCTP})
	}
	return out
}
