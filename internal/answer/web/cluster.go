package web

import (
	"maps"
	"slices"

	"sluice/internal/answer/services"
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
	problem   bool // the object, a newer version of it or one of its slices has a problem
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
	flawed    []model.Name // the Services that have one
}

func copyOf(v engine.View) *parts {
	p := &parts{
		version:   v.Version,
		services:  slices.AppendSeq(make([]*model.Service, 0, len(v.State.Services())), maps.Values(v.State.Services())),
		frontends: slices.AppendSeq(make([]*plan.Frontend, 0, len(v.Desired.Frontends)), maps.Values(v.Desired.Frontends)),
		refused:   v.Desired.Invalid,
		defects:   maps.Clone(v.Desired.Problems),
	}
	for object := range p.defects {
		p.flawed = append(p.flawed, concerned(v.State, object))
	}
	for _, problem := range p.refused { // maybe a newer version of a Service
		p.flawed = append(p.flawed, concerned(v.State, problem.Object))
	}
	return p
}

// concerned returns the Service that an object is, or is a slice of; zero for none.
func concerned(state *model.State, o model.Object) model.Name {
	if name, ok := o.Slice(); ok {
		if slice := state.Slice(name); slice != nil {
			return model.Name{Namespace: name.Namespace, Name: slice.Service}
		}
	}
	name, _ := o.Service()
	return name
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
	}
	for _, name := range p.flawed {
		if s := c.find(name); s != nil {
			s.problem = true
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
func (s *service) sorted() []*plan.Frontend { return services.Sorted(s.frontends) }

func (s *service) hasEndpoints() bool {
	return slices.ContainsFunc(s.frontends, (*plan.Frontend).HasEndpoints)
}
