package model

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Event is one change of a State: SetService, DeleteService, ReleaseService,
// SetSlice, DeleteSlice, SetNode, SetServiceCIDR, DeleteServiceCIDR, SetHostIPs,
// SetInvalid, SetEjected, SetPeer, DeletePeer or SetPaths.
type Event interface{ apply(*State, *Dirty) }

type (
	// SetService adds a Service or replaces the one of that name.
	SetService struct{ *Service }
	// DeleteService removes a Service.
	DeleteService struct{ Name Name }
	// ReleaseService removes a Service that another proxy serves now.
	ReleaseService struct{ Name Name }
	// SetSlice adds an EndpointSlice or replaces the one of that name.
	SetSlice struct{ *Slice }
	// DeleteSlice removes an EndpointSlice.
	DeleteSlice struct{ Name Name }
	// SetNode replaces this node; nil if it was deleted.
	SetNode struct{ *Node }
	// SetServiceCIDR adds a ServiceCIDR or replaces the one of that name.
	SetServiceCIDR struct{ *ServiceCIDR }
	// DeleteServiceCIDR removes a ServiceCIDR.
	DeleteServiceCIDR struct{ Name string }
	// SetHostIPs replaces the addresses of the machine's interfaces.
	SetHostIPs struct{ IPs []netip.Addr }
	// SetInvalid replaces the problems of objects that are not used because of them.
	SetInvalid struct{ Problems []Problem }
)

// Sink receives the events of sources. Its methods do not block for long.
type Sink interface {
	// Update passes on changes that belong together.
	Update(events ...Event)
	// Synced says that everything that existed at the start has been passed on.
	Synced()
}

// Dirty records what changed in a State since it was last planned.
type Dirty struct {
	All      bool              // everything counts as changed; Services is not filled
	Services map[Name]struct{} // Services that changed, themselves or their slices
	Node     bool              // node, other nodes, host addresses, service CIDRs or refusals changed
}

// Empty reports whether nothing changed.
func (d *Dirty) Empty() bool { return len(d.Services) == 0 && !d.Node && !d.All }

func (d *Dirty) service(n Name) {
	if d.All {
		return
	}
	if d.Services == nil {
		d.Services = map[Name]struct{}{}
	}
	d.Services[n] = struct{}{}
}

// State is everything that is known now. It has one writer and no lock: its
// owner applies events and lends it to plan for reading.
type State struct {
	revision uint64
	services map[Name]*Service
	slices   map[Name][]*Slice // by Service, in order of their names
	owner    map[Name]Name     // slice to its Service
	counts   Counts
	node     *Node
	cidrs    map[string]*ServiceCIDR
	hostIPs  []netip.Addr
	invalid  []Problem
	ejected  map[Name][]Ejection // by Service
	peers    []*Peer             // sorted by name
	paths    map[netip.Addr]Path
}

// NewState returns an empty State.
func NewState() *State {
	s := &State{cidrs: map[string]*ServiceCIDR{}}
	s.allocate(0)
	return s
}

func (s *State) allocate(services int) {
	s.services = make(map[Name]*Service, services)
	s.slices = make(map[Name][]*Slice, services)
	s.owner = make(map[Name]Name, services)
}

// Apply applies events and adds what they changed to dirty. Each event that
// changes something increments the revision.
func (s *State) Apply(dirty *Dirty, events ...Event) {
	s.Grow(len(events))
	for _, e := range events {
		e.apply(s, dirty)
	}
}

// Grow allocates space for the first events if there are many.
func (s *State) Grow(events int) {
	if events > 1 && len(s.services) == 0 && len(s.slices) == 0 {
		s.allocate(events / 2) // about half are Services
	}
}

// Revision counts the changes so far.
func (s *State) Revision() uint64 { return s.revision }

// Service returns the Service of that name, nil if there is none.
func (s *State) Service(n Name) *Service { return s.services[n] }

// Services returns all Services by name. The map is the State's own.
func (s *State) Services() map[Name]*Service { return s.services }

// Slices returns the EndpointSlices of a Service, sorted by name. The list is
// the State's own, and valid until the next Apply.
func (s *State) Slices(service Name) []*Slice { return s.slices[service] }

// Slice returns the EndpointSlice of that name, nil if there is none.
func (s *State) Slice(n Name) *Slice {
	of := s.slices[s.owner[n]]
	if at, found := find(of, n); found {
		return of[at]
	}
	return nil
}

// Counts is the number of EndpointSlices of known Services, and of the
// endpoints in them; duplicates count.
type Counts struct{ Slices, Endpoints int }

// Counts returns the current counts, which Apply maintains.
func (s *State) Counts() Counts { return s.counts }

// Orphans is the number of EndpointSlices of Services that are not known.
func (s *State) Orphans() int { return len(s.owner) - s.counts.Slices }

// Unlabelled returns the EndpointSlices that say of no Service that they are its, in order of
// their names.
func (s *State) Unlabelled() (out []*Slice) {
	for service, of := range s.slices {
		if service.Name == "" {
			out = append(out, of...)
		}
	}
	slices.SortFunc(out, func(a, b *Slice) int { return a.Name.Compare(b.Name) })
	return out
}

// count adds slices of a Service to the counts, or with times -1 subtracts
// them.
func (s *State) count(service Name, some []*Slice, times int) {
	if s.services[service] == nil {
		return
	}
	for _, slice := range some {
		s.counts.Slices += times
		s.counts.Endpoints += times * len(slice.Endpoints)
	}
}

// find returns the position of a slice in the sorted list of a Service, or
// where it would be inserted.
func find(of []*Slice, name Name) (int, bool) {
	return slices.BinarySearchFunc(of, name, func(s *Slice, n Name) int { return s.Name.Compare(n) })
}

// Node returns this node, nil while it is unknown.
func (s *State) Node() *Node { return s.node }

// HostIPs returns the addresses of the machine's interfaces.
func (s *State) HostIPs() []netip.Addr { return s.hostIPs }

// Invalid returns the problems of objects that are not used because of them.
func (s *State) Invalid() []Problem { return s.invalid }

// ServiceCIDRs returns the service CIDRs, sorted by name.
func (s *State) ServiceCIDRs() []*ServiceCIDR {
	out := slices.AppendSeq(make([]*ServiceCIDR, 0, len(s.cidrs)), maps.Values(s.cidrs))
	slices.SortFunc(out, func(a, b *ServiceCIDR) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (e SetService) apply(s *State, d *Dirty) {
	known := s.services[e.Name] != nil
	s.services[e.Name] = e.Service
	if !known {
		s.count(e.Name, s.slices[e.Name], +1)
	}
	s.revision++
	d.service(e.Name)
}

func (e DeleteService) apply(s *State, d *Dirty) {
	if _, ok := s.services[e.Name]; !ok {
		return
	}
	s.count(e.Name, s.slices[e.Name], -1)
	delete(s.services, e.Name)
	s.revision++
	d.service(e.Name)
}

func (e ReleaseService) apply(s *State, d *Dirty) { DeleteService(e).apply(s, d) }

func (e SetSlice) apply(s *State, d *Dirty) {
	svc := e.ServiceName()
	if old, ok := s.owner[e.Name]; ok && old != svc {
		s.dropSlice(e.Name, d)
	}
	of := s.slices[svc]
	if at, found := find(of, e.Name); found {
		s.count(svc, of[at:at+1], -1)
		of[at] = e.Slice
	} else {
		s.slices[svc] = slices.Insert(of, at, e.Slice)
	}
	s.count(svc, []*Slice{e.Slice}, +1)
	s.owner[e.Name] = svc
	s.revision++
	d.service(svc)
}

func (e DeleteSlice) apply(s *State, d *Dirty) {
	if _, ok := s.owner[e.Name]; !ok {
		return
	}
	s.dropSlice(e.Name, d)
	s.revision++
}

func (s *State) dropSlice(n Name, d *Dirty) {
	svc := s.owner[n]
	delete(s.owner, n)
	of := s.slices[svc]
	if at, found := find(of, n); found {
		s.count(svc, of[at:at+1], -1)
		of = slices.Delete(of, at, at+1)
	}
	if len(of) == 0 {
		delete(s.slices, svc)
	} else {
		s.slices[svc] = of
	}
	d.service(svc)
}

func (e SetNode) apply(s *State, d *Dirty) {
	s.node = e.Node
	s.revision++
	d.Node = true
}

func (e SetServiceCIDR) apply(s *State, d *Dirty) {
	s.cidrs[e.Name] = e.ServiceCIDR
	s.revision++
	d.Node = true
}

func (e DeleteServiceCIDR) apply(s *State, d *Dirty) {
	if _, ok := s.cidrs[e.Name]; !ok {
		return
	}
	delete(s.cidrs, e.Name)
	s.revision++
	d.Node = true
}

func (e SetHostIPs) apply(s *State, d *Dirty) {
	if slices.Equal(s.hostIPs, e.IPs) {
		return
	}
	s.hostIPs = e.IPs
	s.revision++
	d.Node = true
}

func (e SetInvalid) apply(s *State, d *Dirty) {
	if slices.Equal(s.invalid, e.Problems) {
		return
	}
	s.invalid = e.Problems
	s.revision++
	d.Node = true
}

// Clone returns an independent State with the same contents. Services, slices
// and other values are immutable and shared.
func (s *State) Clone() *State {
	c := *s
	c.services = maps.Clone(s.services)
	c.owner = maps.Clone(s.owner)
	c.cidrs = maps.Clone(s.cidrs)
	c.ejected = maps.Clone(s.ejected)
	c.peers = slices.Clone(s.peers)
	c.paths = maps.Clone(s.paths)
	c.slices = make(map[Name][]*Slice, len(s.slices))
	for name, list := range s.slices {
		c.slices[name] = slices.Clone(list)
	}
	return &c
}
