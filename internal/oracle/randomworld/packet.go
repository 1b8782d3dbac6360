package randomworld

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/oracle"
)

// RandomPacket returns a packet that the lab can send. Most are for a frontend,
// many narrowly miss one.
func RandomPacket(rng *rand.Rand, world oracle.World, topology Topology) oracle.Packet {
	d := drawer{rng, topology}
	p := d.toFrontend(world)
	if d.oneIn(3) || !p.Destination.IsValid() {
		d.miss(world, &p)
	}
	d.from(world, &p)
	return p
}

// toFrontend addresses a packet to a service port, at any address of its
// Service or at the node.
func (d drawer) toFrontend(w oracle.World) oracle.Packet {
	s := pick(d.Rand, w.Services)
	if s == nil || len(s.Ports) == 0 {
		return oracle.Packet{Port: 80, Protocol: model.TCP}
	}
	port := pick(d.Rand, s.Ports)
	p := oracle.Packet{Port: port.Port, Protocol: port.Protocol}
	if len(port.Ranges) > 0 && !d.oneIn(3) {
		r := pick(d.Rand, port.Ranges)
		p.Port = pick(d.Rand, slices.DeleteFunc(slices.Clone(d.EndpointPorts), func(port uint16) bool { return !r.Contains(port) }))
	}
	kinds := [][]netip.Addr{s.ClusterIPs, s.ExternalIPs, s.LoadBalancerIPs, nil}
	addrs := pick(d.Rand, kinds)
	switch {
	case addrs == nil && port.NodePort != 0:
		p.Destination, p.Port = pick(d.Rand, slices.Concat(d.NodeIPs, d.routed())), port.NodePort
	case addrs == nil:
		p.Destination = pick(d.Rand, s.ClusterIPs)
	default:
		p.Destination = pick(d.Rand, addrs)
	}
	return p
}

// routed returns addresses that are local by a route.
func (d drawer) routed() []netip.Addr {
	return slices.Concat(firstAddrs(model.IPv4, d.LocalRoutes, 1), firstAddrs(model.IPv6, d.LocalRoutes, 1))
}

// miss changes the destination of the packet to another port, protocol or
// address.
func (d drawer) miss(w oracle.World, p *oracle.Packet) {
	f := pick(d.Rand, d.families())
	if p.Destination.IsValid() {
		f = model.FamilyOf(p.Destination)
	}
	switch n := d.IntN(6); {
	case n == 0 && p.Destination.IsValid():
		p.Port = pick(d.Rand, []uint16{53, 80, 81, 8080, d.NodePorts.First})
	case n == 1 && p.Destination.IsValid():
		p.Protocol = pick(d.Rand, []model.Protocol{model.TCP, model.UDP, model.SCTP})
	case n == 2:
		p.Destination = pick(d.Rand, addrsOf(f, d.NodeIPs))
	case n == 3:
		near := slices.Concat(firstAddrs(f, d.ExternalIPRange, 3), firstAddrs(f, d.LoadBalancerRange, 4))
		p.Destination = pick(d.Rand, near)
	default:
		p.Destination = pick(d.Rand, firstAddrs(f, d.ServiceCIDR, 40))
	}
}

// from gives the packet a sender of its destination's family. The node sends
// from addresses that the world knows to be its own.
func (d drawer) from(w oracle.World, p *oracle.Packet) {
	f := model.FamilyOf(p.Destination)
	var senders []Pod
	add := func(list []Pod) {
		ours := slices.DeleteFunc(slices.Clone(list), func(s Pod) bool { return model.FamilyOf(s.Addr) != f })
		if len(ours) > 0 {
			senders = append(senders, pick(d.Rand, ours))
		}
	}
	add(d.LocalPods)
	own := slices.DeleteFunc(slices.Clone(d.NodeIPs), func(a netip.Addr) bool { return !slices.Contains(w.HostIPs, a) })
	add(at(own, ""))
	add(at(d.OutsideIPs, d.Uplink))
	var remote []netip.Addr
	for _, r := range d.RemotePods {
		remote = append(remote, r.Addr)
	}
	add(at(remote, d.Uplink))
	sender := pick(d.Rand, senders)
	p.Source, p.Interface = sender.Addr, sender.Interface
}

// at adds the interface through which packets of addresses arrive.
func at(addrs []netip.Addr, in string) []Pod {
	var out []Pod
	for _, a := range addrs {
		out = append(out, Pod{Addr: a, Interface: in})
	}
	return out
}
