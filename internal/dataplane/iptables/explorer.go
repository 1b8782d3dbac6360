package iptables

import (
	"context"
	"net/netip"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/plan"
)

// explorer follows all paths that packets to a place may take, from any sender. Of a
// pool with very many endpoints it reads a part.
type explorer struct {
	ctx    context.Context
	driver driver
	at     dataplane.Destination

	objects []dataplane.Object
	visited map[visit]bool // and whether there was anything for the frontend
	// inside are the endpoints behind rules with a condition on the sender, others
	// those behind all others. divided says that there are both.
	inside, others foundEndpoints
	divided        bool
	err            error
}

// visit is a chain on the path of packets from pods and the node, or from others.
type visit struct {
	table  iptables.Table
	chain  string
	inside bool
}

// foundEndpoints are in the order of the kernel.
type foundEndpoints struct {
	list []netip.AddrPort
	seen map[netip.AddrPort]bool
	// part says that chains with more of them were not read.
	part bool
}

func (f *foundEndpoints) full() bool { return len(f.seen) >= dataplane.MaxDescribed }

func (f *foundEndpoints) add(e netip.AddrPort) {
	if f.seen == nil {
		f.seen = map[netip.AddrPort]bool{}
	}
	if !f.seen[e] && !f.full() {
		f.list = append(f.list, e)
	}
	f.seen[e] = true
}

// size is how many endpoints there are. Those that were not read are assumed to be
// as planned.
func (f *foundEndpoints) size(planned *plan.Route) int {
	if f.part && planned != nil {
		return len(planned.Endpoints)
	}
	return len(f.seen)
}

// description returns the result. The frontend is nil if there should be none.
func (e *explorer) description(f *plan.Frontend) dataplane.Description {
	route, outside := &e.others, &foundEndpoints{}
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

// explore follows chains that packets enter by.
func (e *explorer) explore(t iptables.Table, chains ...string) {
	for _, chain := range chains {
		e.enter(t, chain, false)
	}
}

// enter follows a chain, once, and reports whether there is anything for the frontend.
func (e *explorer) enter(t iptables.Table, chain string, inside bool) bool {
	v := visit{t, chain, inside}
	any, again := e.visited[v]
	if !again && e.err == nil {
		any = e.read(v)
		e.visited[v] = any
	}
	return any
}

// read reads a chain and follows its rules. Those that lead to something for the
// frontend are recorded.
func (e *explorer) read(v visit) (any bool) {
	lines, err := e.driver.Rules(e.ctx, v.table, v.chain)
	if err != nil {
		e.err = err
		return false
	}
	for _, line := range lines {
		r := parseRule(line)
		if !r.matches(e.at) {
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

// follow follows a rule, and reports whether it concerns the frontend.
func (e *explorer) follow(v visit, r *listedRule) bool {
	switch {
	case r.target == nodePortIPsChain && !e.at.NodePort():
		return false
	case isDispatch(r.target):
		return e.enter(v.table, r.target, v.inside)
	case !servesOne(v.chain) && !r.names(e.at):
		return false // for all frontends
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
	case !r.leaves: // recalls the endpoint of a client; those to choose from follow
	case pool.full():
		pool.part = true
	default:
		e.enter(v.table, r.target, inside)
	}
	return true
}
