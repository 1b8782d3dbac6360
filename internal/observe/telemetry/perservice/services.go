package perservice

import (
	"slices"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

type services struct {
	limit     int
	byName    map[model.Name]*service
	frontends map[plan.Key]*frontend
	unused    []unusedPort // while a commit is applied
	// own are the Services with series of their own, shared are the others.
	own, shared []*service
	// other is what was counted for Services while they were in shared.
	other counts
	// refused counts packets of all Services, and of none.
	refused   [plan.NumRefusals]uint64
	refusing  map[refusal]uint64         // since the last read, not reported yet
	unmatched dataplane.UnmatchedTraffic // at the last read of the kernel
	// begun is set by the first commit, and based once the kernel's counters were
	// read after it.
	begun, based bool
}

// counts are monotonic counters.
type counts struct {
	connections uint64
	refused     [plan.NumFrontendRefusals]uint64
	failures    uint64
}

// service is a Service that has a frontend.
type service struct {
	name  model.Name
	own   bool // has series of its own
	index int  // in services.own or services.shared
	ports []*port

	counts    // its connections are in ports
	endpoints plan.EndpointCounts
	failing   int // frontends that the kernel refuses
	// latency is how long its last change took to get into the kernel; changed is
	// set once there was one.
	latency time.Duration
	changed bool
}

// port is a service port.
type port struct {
	name        string
	protocol    model.Protocol
	frontends   int
	connections uint64
	counted     bool // by the kernel
}

// unusedPort is a service port that lost its last frontend, and may get another in
// the same commit.
type unusedPort struct {
	service *service
	port    *port
}

type frontend struct {
	service *service
	port    *port
	last    dataplane.Traffic // counters at the last read
	// based says that last is known. Frontends older than this process have
	// counted before it.
	based, failing bool
}

func newServices(limit int) services {
	return services{limit: limit, byName: map[model.Name]*service{}, frontends: map[plan.Key]*frontend{}, refusing: map[refusal]uint64{}}
}

// apply applies a commit. Ports without frontends are removed last, so that a
// Service whose frontends are all replaced keeps its counters.
func (all *services) apply(c *engine.Commit) {
	all.begun = true
	since := c.Events.Since
	for _, f := range c.Change.Set {
		e := all.set(f)
		_, failed := c.Result.Failed[f.Key]
		e.setFailing(failed)
		if failed {
			all.countsOf(e.service).failures++
		} else if !since.IsZero() {
			e.service.latency, e.service.changed = max(0, c.End.Sub(since)), true
		}
	}
	for _, key := range c.Change.Removed {
		if e := all.frontends[key]; e != nil {
			all.release(e)
			delete(all.frontends, key)
		}
	}
	all.removeUnused()
}

func (all *services) set(f *plan.Frontend) *frontend {
	e := all.frontends[f.Key]
	if e == nil {
		e = &frontend{based: all.based}
		all.frontends[f.Key] = e
	} else if e.service.name == f.Service && e.port.name == f.Port {
		return e
	} else {
		all.release(e)
	}
	e.service = all.service(f.Service)
	e.port = e.service.port(f.Port, f.Protocol)
	e.port.frontends++
	return e
}

func (e *frontend) setFailing(failing bool) {
	switch {
	case failing && !e.failing:
		e.service.failing++
	case !failing && e.failing:
		e.service.failing--
	}
	e.failing = failing
}

func (all *services) release(e *frontend) {
	e.setFailing(false)
	if e.port.frontends--; e.port.frontends == 0 {
		all.unused = append(all.unused, unusedPort{e.service, e.port})
	}
}

// removeUnused removes ports that still have no frontend, and Services with their
// last port.
func (all *services) removeUnused() {
	for _, u := range all.unused {
		if u.port.frontends == 0 && u.service.removePort(u.port) && len(u.service.ports) == 0 {
			all.remove(u.service)
		}
	}
	all.unused = nil
}

// service returns the Service of that name, a new one if there is none.
func (all *services) service(name model.Name) *service {
	s := all.byName[name]
	if s == nil {
		s = &service{name: name}
		all.byName[name] = s
		all.append(s, len(all.own) < all.limit)
	}
	return s
}

func (all *services) append(s *service, own bool) {
	list := all.list(own)
	s.own, s.index = own, len(*list)
	*list = append(*list, s)
}

func (all *services) list(own bool) *[]*service {
	if own {
		return &all.own
	}
	return &all.shared
}

// unlist removes a Service from its list. The last one takes its index.
func (all *services) unlist(s *service) {
	list := all.list(s.own)
	last := len(*list) - 1
	(*list)[s.index] = (*list)[last]
	(*list)[s.index].index = s.index
	(*list)[last] = nil
	*list = (*list)[:last]
}

// remove removes a Service, and gives its series to one of the others.
func (all *services) remove(s *service) {
	delete(all.byName, s.name)
	all.unlist(s)
	if s.own && len(all.shared) > 0 {
		next := all.shared[len(all.shared)-1]
		all.unlist(next)
		all.append(next, true)
	}
}

// port returns the port of that name and protocol, a new one if there is none.
func (s *service) port(name string, protocol model.Protocol) *port {
	for _, p := range s.ports {
		if p.name == name && p.protocol == protocol {
			return p
		}
	}
	p := &port{name: name, protocol: protocol}
	s.ports = append(s.ports, p)
	return p
}

func (s *service) removePort(p *port) bool {
	i := slices.Index(s.ports, p)
	if i < 0 {
		return false
	}
	s.ports = slices.Delete(s.ports, i, i+1)
	return true
}

func (all *services) countsOf(s *service) *counts {
	if s.own {
		return &s.counts
	}
	return &all.other
}
