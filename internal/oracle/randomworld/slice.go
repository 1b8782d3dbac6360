package randomworld

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/oracle"
)

// badAddrs are addresses that no endpoint may have.
var badAddrs = map[model.Family][]string{
	model.IPv4: {"127.0.0.9", "0.0.0.0", "169.254.1.1", "224.0.0.5"},
	model.IPv6: {"::1", "::", "fe80::1", "ff02::5"},
}

// conditions are mostly ready, and else everything that can be met.
var conditions = []model.Conditions{
	model.Ready | model.Serving,
	model.Ready | model.Serving,
	model.Ready | model.Serving,
	model.Serving | model.Terminating,
	model.Serving | model.Terminating,
	model.Ready | model.Serving | model.Terminating,
	model.Serving,
	model.Ready,
	model.Terminating,
	0,
}

// newSlices returns events that replace all slices of a Service.
func (d drawer) newSlices(w oracle.World, s *model.Service) []model.Event {
	var events []model.Event
	for _, old := range slicesOf(w, s.Name) {
		events = append(events, model.DeleteSlice{Name: old.Name})
	}
	none := d.oneIn(8)
	style := d.hintStyle()
	var made []*model.Slice
	for _, f := range model.Families {
		for i := range d.IntN(4) {
			if none || len(d.pods(f)) == 0 {
				continue
			}
			slice := d.slice(s, f, i, made, style)
			made = append(made, slice)
			events = append(events, model.SetSlice{Slice: slice})
		}
	}
	return events
}

func slicesOf(w oracle.World, name model.Name) []*model.Slice {
	return slices.DeleteFunc(slices.Clone(w.Slices), func(s *model.Slice) bool { return s.ServiceName() != name })
}

// slice returns the number-th slice of a Service and family. others are the
// other slices of the Service.
func (d drawer) slice(s *model.Service, f model.Family, number int, others []*model.Slice, style hintStyle) *model.Slice {
	slice := &model.Slice{
		Name:    model.Name{Namespace: s.Name.Namespace, Name: fmt.Sprintf("%s-%v-%d", s.Name.Name, f, number)},
		Service: s.Name.Name,
		Family:  f,
		Ports:   d.slicePorts(s, others),
		Weight:  d.weight(),
	}
	for _, p := range some(d.Rand, d.pods(f), 1+d.IntN(4)) {
		slice.Endpoints = append(slice.Endpoints, d.endpoint(p, others, style))
	}
	if d.oneIn(8) {
		bad := netip.MustParseAddr(pick(d.Rand, badAddrs[f]))
		slice.Endpoints = append(slice.Endpoints,
			model.Endpoint{Addr: bad, Node: d.NodeName, Conditions: model.Ready | model.Serving})
	}
	return slice
}

// slicePorts returns the ports of another slice of the Service, as a controller
// would, or random ones.
func (d drawer) slicePorts(s *model.Service, others []*model.Slice) []model.SlicePort {
	if len(others) > 0 && !d.oneIn(4) {
		return slices.Clone(pick(d.Rand, others).Ports)
	}
	var out []model.SlicePort
	for _, p := range s.Ports {
		if d.oneIn(15) || len(d.EndpointPorts) == 0 {
			continue
		}
		port := d.renamed(p)
		known := slices.ContainsFunc(out, func(o model.SlicePort) bool {
			return o.Name == port.Name && o.Protocol == port.Protocol
		})
		if !known {
			out = append(out, port)
		}
	}
	return out
}

// endpoint returns an endpoint for a pod, in any condition. Its hints are those
// it has in the other slices.
func (d drawer) endpoint(p Pod, others []*model.Slice, style hintStyle) model.Endpoint {
	e := model.Endpoint{Addr: p.Addr, Node: p.Node, Conditions: pick(d.Rand, conditions)}
	for _, other := range others {
		for _, o := range other.Endpoints {
			if o.Addr == p.Addr {
				e.Hints = o.Hints
				return e
			}
		}
	}
	e.Hints = d.hints(style)
	return e
}

// hintStyle says which hints the endpoints of a Service have.
type hintStyle struct{ zones, nodes, gaps bool }

func (d drawer) hintStyle() hintStyle {
	return hintStyle{zones: d.oneIn(3), nodes: d.oneIn(3), gaps: d.oneIn(3)}
}

func (d drawer) hints(m hintStyle) *model.Hints {
	if !m.zones && !m.nodes || m.gaps && d.oneIn(4) {
		return nil
	}
	h := &model.Hints{}
	if m.zones {
		h.Zones = some(d.Rand, []string{"zone-1", "zone-2", "zone-3"}, 1+d.IntN(2))
	}
	if m.nodes {
		h.Nodes = some(d.Rand, []string{d.NodeName, "node-x", "node-y"}, 1+d.IntN(2))
	}
	return h
}

// weight returns the weight of a slice, usually none.
func (d drawer) weight() *uint16 {
	if !d.Annotations || !d.oneIn(4) {
		return nil
	}
	weight := pick(d.Rand, []uint16{0, 0, 1, 3, 50, 100, 65535})
	return &weight
}
