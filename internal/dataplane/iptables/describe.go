package iptables

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"sluice/internal/dataplane"
	"sluice/internal/iptables"
	"sluice/internal/netns"
	"sluice/internal/plan"
)

// errReconciling is the answer to Describe while it is not known what is there.
var errReconciling = errors.New("it is being compared with what is desired: ask again")

// Describe goes the ways of packets to a frontend, and reads the chains on them.
func (d *Dataplane) Describe(ctx context.Context, at dataplane.Destination, client netip.Addr) (dataplane.Description, error) {
	drv, states := d.lookedAt()
	if states == nil {
		return dataplane.Description{}, errReconciling
	}
	i := slices.IndexFunc(states, func(s *familyState) bool { return s.family == at.Family() })
	if i < 0 {
		return dataplane.Description{}, nil // nothing can be there
	}
	e := explorer{ctx: ctx, driver: drv, place: at, visited: map[visit]bool{}}
	e.explore(iptables.Table{Family: at.Family(), Name: nat}, servicesChain)
	e.explore(iptables.Table{Family: at.Family(), Name: filter}, servicesChain, externalServicesChain, firewallChain)
	if e.err != nil {
		return dataplane.Description{}, e.err
	}
	f := states[i].frontend(at.Key)
	out := e.description(f)
	if f == nil || f.Affinity == 0 || !client.IsValid() {
		return out, nil
	}
	err := netns.Do(d.netns, func() error { return recallClient(ctx, &out, f, client) })
	return out, err
}

// lookedAt is what the kernel is read with, and what is known of it.
func (d *Dataplane) lookedAt() (drv driver, states []*familyState) {
	d.locked(func() { drv, states = d.driver, d.states })
	return drv, states
}

// recallClient finds the endpoints that the kernel remembers for a client, in the
// order in which the rules ask for them.
func recallClient(ctx context.Context, out *dataplane.Description, f *plan.Frontend, client netip.Addr) error {
	pool := f.Route.Endpoints
	if f.Outside != nil {
		pool = slices.Concat(pool, f.Outside.Endpoints)
	}
	for _, e := range pool {
		if err := ctx.Err(); err != nil {
			return err
		}
		list := idOf(f).clients(e.AddrPort)
		line, left, err := remembered(list, client, f.Affinity)
		if err != nil {
			return err
		}
		if left > 0 {
			out.Remembered = append(out.Remembered, dataplane.Remembered{Endpoint: e.AddrPort, Expires: left})
			out.Objects = append(out.Objects, dataplane.Object{Where: "recent " + list, What: line})
		}
	}
	return nil
}

// explorer goes all ways that packets to a place may take, whoever sends them,
// until something fails. Of a pool with very many endpoints it reads a part.
type explorer struct {
	ctx    context.Context
	driver driver
	place  dataplane.Destination

	objects []dataplane.Object
	visited map[visit]bool // and whether there was anything
	// inside are the endpoints of those for whom there are rules with a
	// condition, others those of all others. divided says that there are both.
	inside, others found
	divided        bool
	err            error
}

// visit is that of a chain on the way of certain senders, or of all others.
type visit struct {
	table  iptables.Table
	chain  string
	inside bool
}

// found are endpoints, in the order of the kernel.
type found struct {
	list []netip.AddrPort
	seen map[netip.AddrPort]bool
	// part says that there are chains with more of them.
	part bool
}

func (f *found) full() bool { return len(f.seen) >= dataplane.MaxDescribed }

func (f *found) add(e netip.AddrPort) {
	if f.seen == nil {
		f.seen = map[netip.AddrPort]bool{}
	}
	if !f.seen[e] && !f.full() {
		f.list = append(f.list, e)
	}
	f.seen[e] = true
}

// size is how many endpoints there are. Those that were not read are taken for
// granted.
func (f *found) size(planned *plan.Route) int {
	if f.part && planned != nil {
		return len(planned.Endpoints)
	}
	return len(f.seen)
}

// description sums up. The frontend is nil if there should be none.
func (e *explorer) description(f *plan.Frontend) dataplane.Description {
	route, outside := &e.others, &found{}
	if e.divided {
		route, outside = &e.inside, &e.others
	}
	var planned, plannedOutside *plan.Route
	if f != nil {
		planned, plannedOutside = &f.Route, f.Outside
	}
	return dataplane.Description{
		Present: len(e.objects) > 0,
		Objects: e.objects,
		Route:   route.list, RouteSize: route.size(planned),
		Outside: outside.list, OutsideSize: outside.size(plannedOutside),
	}
}

// explore goes through chains that packets enter by.
func (e *explorer) explore(t iptables.Table, chains ...string) {
	for _, chain := range chains {
		e.enter(t, chain, false)
	}
}

// enter goes through a chain, once, and tells whether there is anything for the
// frontend.
func (e *explorer) enter(t iptables.Table, chain string, inside bool) bool {
	v := visit{t, chain, inside}
	any, again := e.visited[v]
	if !again && e.err == nil {
		any = e.read(v)
		e.visited[v] = any
	}
	return any
}

// read reads a chain and goes on from there. Rules that lead to something for
// the frontend are noted.
func (e *explorer) read(v visit) (any bool) {
	lines, err := e.driver.Rules(e.ctx, v.table, v.chain)
	if err != nil {
		e.err = err
		return false
	}
	for _, line := range lines {
		r := parseRule(line)
		if !r.takes(e.place) {
			continue
		}
		before := len(e.objects)
		e.objects = append(e.objects, dataplane.Object{Where: v.table.String(), What: line})
		if e.follow(v, &r) {
			any = true
		} else {
			e.objects = e.objects[:before]
		}
	}
	return any
}

// follow goes where a rule leads, and tells whether it has to do with the
// frontend.
func (e *explorer) follow(v visit, r *listedRule) bool {
	switch {
	case r.target == nodePortIPsChain && !e.place.NodePort():
		return false
	case leadsOn(r.target):
		return e.enter(v.table, r.target, v.inside)
	case !servesOne(v.chain) && !r.names(e.place):
		return false // for everybody
	case r.target == markChain || r.target == markOffClusterChain:
		return true
	}
	inside := v.inside
	if v.table.Name == nat && !isAdmission(v.chain) && r.conditional {
		inside, e.divided = true, true
	}
	pool := &e.others
	if inside {
		pool = &e.inside
	}
	switch {
	case r.to.IsValid() && !r.recalls:
		pool.add(r.to)
	case !servesOne(r.target):
	case !isPool(v.chain):
		e.enter(v.table, r.target, inside)
	case !r.leaves: // to recall the endpoint of a client; those to choose from follow
	case pool.full():
		pool.part = true
	default:
		e.enter(v.table, r.target, inside)
	}
	return true
}
