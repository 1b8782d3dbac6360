package perservice

import (
	"slices"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// ledger is what is known of every Service that has a frontend.
type ledger struct {
	limit     int
	services  map[model.Name]*service
	frontends map[plan.Key]*frontend
	vacant    []vacancy // while a commit is taken in
	// own are the Services with series of their own, shared are the others.
	own, shared []*service
	// other is what was counted for Services while they were among shared.
	other counts
	// refused counts for all Services, and for what is none.
	refused [plan.NumRefusals]uint64
	strays  dataplane.UnmatchedTraffic // when the kernel was last asked
	// begun says that there was a commit, and based that it is known where the
	// kernel's counters stood after the first one.
	begun, based bool
}

// counts are numbers that only grow.
type counts struct {
	connections uint64
	refused     [plan.NumFrontendRefusals]uint64
	failures    uint64
}

// service is a Service that has a frontend.
type service struct {
	name  model.Name
	own   bool // it has series of its own
	place int  // among those that have, or those that have not
	ports []*port

	counts    // its connections are in ports
	endpoints plan.EndpointCounts
	failing   int // frontends that the kernel refuses
	// took is how long its last change took to get into the kernel, and changed
	// says that there was one.
	took    time.Duration
	changed bool
}

// port is a service port.
type port struct {
	name        string
	protocol    model.Protocol
	frontends   int
	connections uint64
	counted     bool // the kernel counts them
}

// vacancy is a service port that lost its last frontend, and may get another.
type vacancy struct {
	service *service
	port    *port
}

// frontend is one of a service port.
type frontend struct {
	service *service
	port    *port
	last    dataplane.Traffic // what the kernel said
	// based says that last is known. What was there before us has counted before
	// us.
	based, failing bool
}

func newLedger(limit int) ledger {
	return ledger{limit: limit, services: map[model.Name]*service{}, frontends: map[plan.Key]*frontend{}}
}

// follow takes in a commit. What has no frontend left ends last, so that a Service
// that exchanges all its frontends stays itself.
func (l *ledger) follow(c *engine.Commit) {
	l.begun = true
	since := c.Events.Since
	for _, f := range c.Change.Set {
		e := l.set(f)
		_, failed := c.Result.Failed[f.Key]
		e.fail(failed)
		if failed {
			l.countsOf(e.service).failures++
		} else if !since.IsZero() {
			e.service.took, e.service.changed = max(0, c.End.Sub(since)), true
		}
	}
	for _, key := range c.Change.Removed {
		if e := l.frontends[key]; e != nil {
			l.release(e)
			delete(l.frontends, key)
		}
	}
	l.endVacant()
}

// set notes who a frontend belongs to.
func (l *ledger) set(f *plan.Frontend) *frontend {
	e := l.frontends[f.Key]
	if e == nil {
		e = &frontend{based: l.based}
		l.frontends[f.Key] = e
	} else if e.service.name == f.Service && e.port.name == f.Port {
		return e
	} else {
		l.release(e)
	}
	e.service = l.service(f.Service)
	e.port = e.service.port(f.Port, f.Protocol)
	e.port.frontends++
	return e
}

func (e *frontend) fail(failing bool) {
	switch {
	case failing && !e.failing:
		e.service.failing++
	case !failing && e.failing:
		e.service.failing--
	}
	e.failing = failing
}

// release takes a frontend from its Service.
func (l *ledger) release(e *frontend) {
	e.fail(false)
	if e.port.frontends--; e.port.frontends == 0 {
		l.vacant = append(l.vacant, vacancy{e.service, e.port})
	}
}

// endVacant ends the ports that have no frontend any more, and Services with
// their last port.
func (l *ledger) endVacant() {
	for _, v := range l.vacant {
		if v.port.frontends == 0 && v.service.drop(v.port) && len(v.service.ports) == 0 {
			l.remove(v.service)
		}
	}
	l.vacant = nil
}

// service finds a Service, or begins it.
func (l *ledger) service(name model.Name) *service {
	s := l.services[name]
	if s == nil {
		s = &service{name: name}
		l.services[name] = s
		l.place(s, len(l.own) < l.limit)
	}
	return s
}

// place puts a Service among those with series of their own, or the others.
func (l *ledger) place(s *service, own bool) {
	list := l.list(own)
	s.own, s.place = own, len(*list)
	*list = append(*list, s)
}

func (l *ledger) list(own bool) *[]*service {
	if own {
		return &l.own
	}
	return &l.shared
}

// displace takes a Service off its list. The last one takes its place.
func (l *ledger) displace(s *service) {
	list := l.list(s.own)
	last := len(*list) - 1
	(*list)[s.place] = (*list)[last]
	(*list)[s.place].place = s.place
	(*list)[last] = nil
	*list = (*list)[:last]
}

// remove forgets a Service, and lets another have series of its own instead.
func (l *ledger) remove(s *service) {
	delete(l.services, s.name)
	l.displace(s)
	if s.own && len(l.shared) > 0 {
		next := l.shared[len(l.shared)-1]
		l.displace(next)
		l.place(next, true)
	}
}

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

// drop takes a port off a Service, unless it has none such.
func (s *service) drop(gone *port) bool {
	i := slices.Index(s.ports, gone)
	if i < 0 {
		return false
	}
	s.ports = slices.Delete(s.ports, i, i+1)
	return true
}

// countsOf are those that a Service counts in.
func (l *ledger) countsOf(s *service) *counts {
	if s.own {
		return &s.counts
	}
	return &l.other
}
