package web

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// cluster is what is known and planned at one moment. Neither it nor what it
// points to ever changes.
type cluster struct {
	version  uint64    // of the engine's view
	services []service // by name
	indexes  map[model.Name]int
	idle     int // Services that connections can go nowhere of
}

// service is a Service and what is planned for it.
type service struct {
	*model.Service
	frontends []*plan.Frontend
	problem   bool // something of it was left out
	empty     bool // connections to it can go nowhere
}

// cluster takes in what is known and planned, unless that is what it was the
// last time. Planning waits while pointers are copied, and does not while they
// are put in order.
func (p *Page) cluster() *cluster {
	last := p.last.Load()
	var parts *parts
	p.Engine.Inspect(func(v engine.View) {
		if last == nil || last.version != v.Version {
			parts = copyOf(v)
		}
	})
	if parts == nil {
		return last
	}
	c := parts.join(last)
	p.last.Store(c)
	return c
}

// parts is what a cluster is made of, in no order.
type parts struct {
	version   uint64
	services  []*model.Service
	frontends []*plan.Frontend
	objects   []string // those with problems
}

func copyOf(v engine.View) *parts {
	return &parts{
		version:   v.Version,
		services:  slices.AppendSeq(make([]*model.Service, 0, len(v.State.Services())), maps.Values(v.State.Services())),
		frontends: slices.AppendSeq(make([]*plan.Frontend, 0, len(v.Desired.Frontends)), maps.Values(v.Desired.Frontends)),
		objects:   slices.Collect(maps.Keys(v.Desired.Problems)),
	}
}

// join puts together what belongs together. last is the cluster before, or nil.
func (p *parts) join(last *cluster) *cluster {
	c := &cluster{version: p.version, services: make([]service, len(p.services)), indexes: p.indexes(last)}
	for _, s := range p.services {
		c.services[c.indexes[s.Name]].Service = s
	}
	for _, f := range p.frontends {
		if s := c.find(f.Service); s != nil {
			s.frontends = append(s.frontends, f)
		}
	}
	for _, object := range p.objects {
		if name, ok := serviceOf(object); ok && c.find(name) != nil {
			c.find(name).problem = true
		}
	}
	for i := range c.services {
		if s := &c.services[i]; !s.goesSomewhere() {
			s.empty = true
			c.idle++
		}
	}
	return c
}

// indexes is where each Service is in the order of their names. Mostly they are
// the same Services as before, and sorting is what takes longest.
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

// serviceOf is the Service that an object is, as in "Service default/web".
func serviceOf(object string) (model.Name, bool) {
	full, ok := strings.CutPrefix(object, "Service ")
	namespace, name, found := strings.Cut(full, "/")
	return model.Name{Namespace: namespace, Name: name}, ok && found
}

// sorted are the frontends of a Service, ClusterIPs first.
func (s *service) sorted() []*plan.Frontend {
	return slices.SortedFunc(slices.Values(s.frontends), func(a, b *plan.Frontend) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Family(), b.Family()), a.Key.Compare(b.Key))
	})
}

// endpoints counts the addresses that connections to the Service can go to, and
// those of them on this node. Pools of several ports mostly share them.
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

func (s *service) goesSomewhere() bool {
	return slices.ContainsFunc(s.frontends, (*plan.Frontend).HasEndpoints)
}
