//go:build linux

package main

import (
	"net/netip"
	"slices"
	"strconv"

	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/test/lab/scenario"
)

// sliceSize is the number of endpoints that the controller puts into a slice.
const sliceSize = 100

// endpointPort is the port of endpoints, if there are any.
const endpointPort = 8000

// cluster makes the objects of a workload.
type cluster struct {
	workload
	slices []*model.Slice // by Service, the last slice of each
	fresh  uint32
}

func newCluster(w workload) *cluster {
	return &cluster{workload: w, slices: make([]*model.Slice, w.Services)}
}

func ipv4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

const (
	firstClusterIP = 0xAC100001 // 172.16.0.1
	firstPodIP     = 0x0A000001 // 10.0.0.1
	firstFreshIP   = 0x0B000001

	firstLoadBalancerIP = 0xC6120001 // 198.18.0.1
	firstSource         = 0x14000000 // 20.0.0.0
)

// affinitySeconds is for how long clients are remembered, by default.
const affinitySeconds = 10800

func (c *cluster) events() []model.Event {
	var events []model.Event
	node := &model.Node{Name: "bench", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}
	events = append(events, model.SetNode{Node: node}, model.SetHostIPs{IPs: node.IPs})
	pod := uint32(firstPodIP)
	for i := range c.Services {
		name := model.Name{Namespace: "bench", Name: "svc-" + strconv.Itoa(i)}
		svc := &model.Service{
			Name:       name,
			ClusterIPs: []netip.Addr{ipv4(firstClusterIP + uint32(i))},
			Ports:      c.ranged(i, []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}}),
			Algorithm:  c.algorithm(),
		}
		if c.Ranges == rangesTogether { // all claim the single port there, too
			svc.ExternalIPs = []netip.Addr{ipv4(firstLoadBalancerIP)}
		}
		if c.Sticky {
			svc.Affinity = affinitySeconds
		}
		if c.Sources > 0 {
			svc.LoadBalancerIPs, svc.Filtered = []netip.Addr{ipv4(firstLoadBalancerIP + uint32(i))}, true
			for j := range c.Sources {
				svc.SourceRanges = append(svc.SourceRanges, netip.PrefixFrom(ipv4(firstSource+uint32(j)<<8), 24))
			}
		}
		events = append(events, model.SetService{Service: svc})
		for at := 0; at < c.Endpoints; at += sliceSize {
			s := &model.Slice{
				Name:    model.Name{Namespace: "bench", Name: name.Name + "-" + strconv.Itoa(at)},
				Service: name.Name,
				Family:  model.IPv4,
				Ports:   []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: endpointPort}},
			}
			for range min(sliceSize, c.Endpoints-at) {
				s.Endpoints = append(s.Endpoints, endpoint(ipv4(pod)))
				pod++
			}
			events = append(events, model.SetSlice{Slice: s})
			c.slices[i] = s
		}
	}
	if c.Target != "" {
		last := c.slices[c.Services-1]
		last.Endpoints = []model.Endpoint{endpoint(netip.MustParseAddr(c.Target))}
	}
	return events
}

// algorithm returns the algorithm of that name.
func (w workload) algorithm() model.Algorithm {
	for a := range model.LeastConnections {
		if a.String() == w.Algorithm {
			return a
		}
	}
	return model.Random
}

// possible reports whether the mode has the algorithm.
func (w workload) possible() bool {
	var config plan.Config
	if adjust := scenario.Modes[w.Mode].Adjust; adjust != nil {
		adjust(&config)
	}
	return config.Algorithms.Has(w.algorithm())
}

// last returns the address of the last Service.
func (w workload) last() netip.AddrPort {
	return netip.AddrPortFrom(ipv4(firstClusterIP+uint32(w.Services-1)), 80)
}

func endpoint(ip netip.Addr) model.Endpoint {
	return model.Endpoint{Addr: ip, Node: "elsewhere", Conditions: model.Ready | model.Serving}
}

// change returns a changed copy of a Service's last slice.
func (c *cluster) change(i int, f func([]model.Endpoint) []model.Endpoint) model.Event {
	i %= c.Services
	s := *c.slices[i]
	s.Endpoints = f(slices.Clone(s.Endpoints))
	c.slices[i] = &s
	return model.SetSlice{Slice: &s}
}

func (c *cluster) new() model.Endpoint {
	c.fresh++
	return endpoint(ipv4(firstFreshIP + c.fresh))
}

func (c *cluster) added(i int) model.Event {
	return c.change(i, func(eps []model.Endpoint) []model.Endpoint { return append(eps, c.new()) })
}

func (c *cluster) replaced(i int) model.Event {
	return c.change(i, func(eps []model.Endpoint) []model.Endpoint { eps[len(eps)-1] = c.new(); return eps })
}

func (c *cluster) removed(i int) model.Event {
	return c.change(i, func(eps []model.Endpoint) []model.Endpoint { return eps[:len(eps)-1] })
}
