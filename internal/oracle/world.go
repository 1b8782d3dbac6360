package oracle

import (
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// World is everything a verdict depends on.
type World struct {
	Config       plan.Config
	Services     []*model.Service
	Slices       []*model.Slice
	Node         *model.Node
	HostIPs      []netip.Addr
	ServiceCIDRs []*model.ServiceCIDR
	// LocalRoutes are local according to the routing table besides HostIPs.
	// They are in no object.
	LocalRoutes []netip.Prefix
}

// FromState returns the world that a State describes, without slices of unknown
// Services, which affect no verdict.
func FromState(config plan.Config, state *model.State) World {
	w := World{
		Config:       config,
		Node:         state.Node(),
		HostIPs:      state.HostIPs(),
		ServiceCIDRs: state.ServiceCIDRs(),
	}
	names := slices.SortedFunc(maps.Keys(state.Services()), model.Name.Compare)
	for _, name := range names {
		w.Services = append(w.Services, state.Service(name))
		w.Slices = append(w.Slices, state.Slices(name)...)
	}
	return w
}

// Events returns events that bring an empty State to this world.
func (w World) Events() []model.Event {
	events := []model.Event{
		model.SetNode{Node: w.Node},
		model.SetHostIPs{IPs: w.HostIPs},
	}
	for _, c := range w.ServiceCIDRs {
		events = append(events, model.SetServiceCIDR{ServiceCIDR: c})
	}
	for _, s := range w.Services {
		events = append(events, model.SetService{Service: s})
	}
	for _, s := range w.Slices {
		events = append(events, model.SetSlice{Slice: s})
	}
	return events
}

// After returns the world after the events. The receiver is not modified.
func (w World) After(events ...model.Event) World {
	for _, event := range events {
		switch e := event.(type) {
		case model.SetService:
			w.Services = append(without(w.Services, named(e.Name)), e.Service)
		case model.DeleteService:
			w.Services = without(w.Services, named(e.Name))
		case model.SetSlice:
			w.Slices = append(without(w.Slices, sliceNamed(e.Name)), e.Slice)
		case model.DeleteSlice:
			w.Slices = without(w.Slices, sliceNamed(e.Name))
		case model.SetNode:
			w.Node = e.Node
		case model.SetHostIPs:
			w.HostIPs = e.IPs
		case model.SetServiceCIDR:
			w.ServiceCIDRs = append(without(w.ServiceCIDRs, cidrNamed(e.Name)), e.ServiceCIDR)
		case model.DeleteServiceCIDR:
			w.ServiceCIDRs = without(w.ServiceCIDRs, cidrNamed(e.Name))
		}
	}
	return w
}

func named(n model.Name) func(*model.Service) bool {
	return func(s *model.Service) bool { return s.Name == n }
}

func sliceNamed(n model.Name) func(*model.Slice) bool {
	return func(s *model.Slice) bool { return s.Name == n }
}

func cidrNamed(n string) func(*model.ServiceCIDR) bool {
	return func(c *model.ServiceCIDR) bool { return c.Name == n }
}

func without[T any](list []T, unwanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), unwanted)
}
