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

// cluster is what is known and planned at one moment. What it points to never
// changes.
type cluster struct {
	services []service // by name
	failures map[plan.Key]struct{}
	counters reading
	status   func(plan.Key) (engine.FrontendStatus, bool)
}

// service is a Service and what is planned for it.
type service struct {
	*model.Service
	frontends []*plan.Frontend
	problem   bool // something of it was left out
}

// look takes in the cluster. Planning waits while pointers are copied, and does
// not while they are put in order.
func (p *Page) look(counters reading) *cluster {
	var services []*model.Service
	var frontends []*plan.Frontend
	var objects []string
	p.Engine.Inspect(func(v engine.View) {
		services = slices.AppendSeq(make([]*model.Service, 0, len(v.State.Services())), maps.Values(v.State.Services()))
		frontends = slices.AppendSeq(make([]*plan.Frontend, 0, len(v.Desired.Frontends)), maps.Values(v.Desired.Frontends))
		objects = slices.Collect(maps.Keys(v.Desired.Problems))
	})
	c := p.newCluster(counters)
	c.group(services, frontends, objects)
	return c
}

// lookAt takes in one Service, nil if there is none of that name.
func (p *Page) lookAt(name model.Name, counters reading) (*cluster, *service) {
	var found []*model.Service
	var frontends []*plan.Frontend
	var objects []string
	p.Engine.Inspect(func(v engine.View) {
		s := v.State.Service(name)
		if s == nil {
			return
		}
		found = []*model.Service{s}
		for _, f := range v.Desired.Frontends {
			if f.Service == name {
				frontends = append(frontends, f)
			}
		}
		if object := "Service " + name.String(); len(v.Desired.Problems[object]) > 0 {
			objects = []string{object}
		}
	})
	c := p.newCluster(counters)
	if found == nil {
		return c, nil
	}
	c.group(found, frontends, objects)
	return c, &c.services[0]
}

func (p *Page) newCluster(counters reading) *cluster {
	c := &cluster{counters: counters, status: p.Engine.Frontend, failures: map[plan.Key]struct{}{}}
	for _, f := range p.Engine.Failures() {
		c.failures[f.Key] = struct{}{}
	}
	return c
}

// group gives each Service its frontends. objects are those with problems.
func (c *cluster) group(services []*model.Service, frontends []*plan.Frontend, objects []string) {
	slices.SortFunc(services, func(a, b *model.Service) int { return a.Name.Compare(b.Name) })
	c.services = make([]service, len(services))
	at := make(map[model.Name]*service, len(services))
	for i, s := range services {
		c.services[i].Service = s
		at[s.Name] = &c.services[i]
	}
	for _, f := range frontends {
		if s := at[f.Service]; s != nil {
			s.frontends = append(s.frontends, f)
		}
	}
	for _, object := range objects {
		if name, ok := serviceOf(object); ok && at[name] != nil {
			at[name].problem = true
		}
	}
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
		for _, route := range routes(f) {
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

// empty tells whether connections to the Service can go nowhere.
func (s *service) empty() bool {
	return !slices.ContainsFunc(s.frontends, func(f *plan.Frontend) bool {
		return slices.ContainsFunc(routes(f), func(r *plan.Route) bool { return len(r.Endpoints) > 0 })
	})
}

// idle counts the Services that connections can go nowhere of.
func (c *cluster) idle() (n int) {
	for i := range c.services {
		if c.services[i].empty() {
			n++
		}
	}
	return n
}

func routes(f *plan.Frontend) []*plan.Route {
	if f.Outside != nil {
		return []*plan.Route{&f.Route, f.Outside}
	}
	return []*plan.Route{&f.Route}
}
