package web

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// cluster is what is known and planned at one moment. It is immutable, and so is what
// it points to.
type cluster struct {
	version  uint64    // of the engine's view
	services []service // by name
	indexes  map[model.Name]int
	idle     int // Services without any endpoint
	// namespaces are those that have a Service.
	namespaces []string
	// defects are the problems of objects, those of refused ones first.
	defects []model.Problem
}

// service is a Service and what is planned for it.
type service struct {
	*model.Service
	index     int // among all
	frontends []*plan.Frontend
	problem   bool // the object or one of its slices has a problem
	empty     bool // no frontend has an endpoint
}

// cluster returns what is known and planned, and reuses the last one if nothing
// changed. Planning waits while pointers are copied, but not while they are sorted.
func (h *Handler) cluster() *cluster {
	last := h.last.Load()
	var parts *parts
	h.Engine.Inspect(func(v engine.View) {
		if last == nil || last.version != v.Version {
			parts = copyOf(v)
		}
	})
	if parts == nil {
		return last
	}
	c := parts.join(last)
	h.last.Store(c)
	return c
}

// parts are the unsorted parts of a cluster.
type parts struct {
	version   uint64
	services  []*model.Service
	frontends []*plan.Frontend
	refused   []model.Problem
	defects   map[model.Object][]model.Problem
	owners    map[model.Object]model.Name // of slices that have some
}

func copyOf(v engine.View) *parts {
	p := &parts{
		version:   v.Version,
		services:  slices.AppendSeq(make([]*model.Service, 0, len(v.State.Services())), maps.Values(v.State.Services())),
		frontends: slices.AppendSeq(make([]*plan.Frontend, 0, len(v.Desired.Frontends)), maps.Values(v.Desired.Frontends)),
		refused:   v.Desired.Refused,
		defects:   maps.Clone(v.Desired.Problems),
		owners:    map[model.Object]model.Name{},
	}
	for object := range p.defects {
		name, isSlice := object.Slice()
		if slice := v.State.Slice(name); isSlice && slice != nil {
			p.owners[object] = model.Name{Namespace: name.Namespace, Name: slice.Service}
		}
	}
	return p
}

// join builds a cluster. last is the previous one, or nil.
func (p *parts) join(last *cluster) *cluster {
	c := &cluster{version: p.version, services: make([]service, len(p.services)), indexes: p.indexes(last)}
	for _, s := range p.services {
		i := c.indexes[s.Name]
		c.services[i].Service, c.services[i].index = s, i
	}
	for _, f := range p.frontends {
		if s := c.find(f.Service); s != nil {
			s.frontends = append(s.frontends, f)
		}
	}
	c.defects = slices.Clone(p.refused)
	for _, object := range slices.SortedFunc(maps.Keys(p.defects), model.Object.Compare) {
		c.defects = append(c.defects, p.defects[object]...)
		name, ok := object.Service()
		if owner, isSlice := p.owners[object]; isSlice {
			name, ok = owner, true
		}
		if ok && c.find(name) != nil {
			c.find(name).problem = c.find(name).problem || len(p.defects[object]) > 0
		}
	}
	for i := range c.services {
		if n := c.services[i].Name.Namespace; i == 0 || n != c.services[i-1].Name.Namespace {
			c.namespaces = append(c.namespaces, n)
		}
		if s := &c.services[i]; !s.hasEndpoints() {
			s.empty = true
			c.idle++
		}
	}
	return c
}

// indexes returns the index of each Service by name order. Mostly the Services are the
// same as before, and sorting takes longest.
func (p *parts) indexes(last *cluster) map[model.Name]int {
	if last != nil && len(last.indexes) == len(p.services) {
		isNew := func(s *model.Service) bool { _, known := last.indexes[s.Name]; return !known }
		if !slices.ContainsFunc(p.services, isNew) {
			return last.indexes
		}
	}
	slices.SortFunc(p.services, func(a, b *model.Service) int { return a.Name.Compare(b.Name) })
	out := make(map[model.Name]int, len(p.services))
	for i, s := range p.services {
		out[s.Name] = i
	}
	return out
}

// find returns the Service of that name, nil if there is none.
func (c *cluster) find(name model.Name) *service {
	if i, ok := c.indexes[name]; ok {
		return &c.services[i]
	}
	return nil
}

// sorted returns the frontends of a Service, ClusterIPs first.
func (s *service) sorted() []*plan.Frontend {
	return slices.SortedFunc(slices.Values(s.frontends), func(a, b *plan.Frontend) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Family(), b.Family()), a.Key.Compare(b.Key))
	})
}

// endpoints counts the addresses in the pools of the Service, and those of them on
// this node.
func (s *service) endpoints() (all, here int) {
	seen := map[netip.Addr]struct{}{}
	for _, f := range s.frontends {
		for _, route := range f.Routes() {
			for _, e := range route.Endpoints {
				if _, ok := seen[e.Addr()]; ok {
					continue
				}
				seen[e.Addr()] = struct{}{}
				if e.Local {
					here++
				}
			}
		}
	}
	return len(seen), here
}

func (s *service) hasEndpoints() bool {
	return slices.ContainsFunc(s.frontends, (*plan.Frontend).HasEndpoints)
}
