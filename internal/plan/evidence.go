package plan

import (
	"slices"

	"sluice/internal/model"
)

// Evidence is what the plan of one Service is made from. It serves to explain
// the plan, by the rules that planning itself follows.
type Evidence struct {
	Service *model.Service // nil if there is none of that name
	Slices  []*model.Slice
	env     environment
	// frontends are those that the Service has, none that another one holds, and
	// plan is what it asks for.
	frontends []*Frontend
	plan      servicePlan
}

// PoolDecision tells how the pools of one service port in one family came about.
type PoolDecision struct {
	Port   model.ServicePort
	Family model.Family
	// Endpoints are of all endpoints in the slices, in the order of those.
	Endpoints []EndpointDecision
	// Cluster and Local are the origins of the two pools.
	Cluster, Local Origin
	// Hinted and Unhinted count the ready endpoints with and without hints.
	Hinted, Unhinted int
}

// EndpointDecision is what became of one endpoint of a slice.
type EndpointDecision struct {
	Slice    model.Name
	Endpoint *model.Endpoint
	Port     uint16 // that it serves the service port on; 0 for none
	Local    bool   // it runs on this node
	// InCluster and InLocal say whether it is in the pools, and why not.
	InCluster, InLocal Reason
}

// Evidence gathers what the plan of a Service is made from. It is cheap, and
// what it returns stays as it is when the State changes.
func (p *Planner) Evidence(state *model.State, name model.Name) Evidence {
	e := Evidence{Service: state.Service(name), Slices: slices.Clone(state.Slices(name)), env: p.env}
	if c := p.services[name]; c != nil {
		e.plan = c.plan
		for _, f := range c.plan.frontends {
			if p.desired.Frontends[f.Key] == f {
				e.frontends = append(e.frontends, f)
			}
		}
	}
	return e
}

// NodeName is the name of this node.
func (e *Evidence) NodeName() string { return e.env.nodeName }

// Zone is the zone of this node, "" if it has none.
func (e *Evidence) Zone() string { return e.env.zone }

// Frontends are those that the Service has, sorted by key.
func (e *Evidence) Frontends() []*Frontend { return e.frontends }

// Accounts explains the pools of every service port and family.
func (e *Evidence) Accounts() []PoolDecision {
	return e.accounts(func(*model.ServicePort, model.Family) bool { return true })
}

// PoolDecision explains the pools of the service port that a frontend is of, nil
// if there is none.
func (e *Evidence) PoolDecision(f *Frontend) *PoolDecision {
	accounts := e.accounts(func(p *model.ServicePort, family model.Family) bool {
		number := p.Port
		if f.Kind == NodePort {
			number = p.NodePort
		}
		return family == f.Family() && p.Name == f.Port && p.Protocol == f.Protocol && number == f.Key.Port
	})
	if len(accounts) == 0 {
		return nil
	}
	return &accounts[0]
}

func (e *Evidence) accounts(wanted func(*model.ServicePort, model.Family) bool) []PoolDecision {
	if e.Service == nil {
		return nil
	}
	d := draft{service: e.Service, env: &e.env, slices: e.Slices, work: &candidates{}}
	d.collectAddresses()
	var out []PoolDecision
	for _, f := range model.Families {
		if !d.hasFamily(f) {
			continue
		}
		for i := range e.Service.Ports {
			if p := &e.Service.Ports[i]; wanted(p, f) {
				out = append(out, d.decidePools(p, f))
			}
		}
	}
	return out
}

func (d *draft) decidePools(port *model.ServicePort, f model.Family) PoolDecision {
	d.work.gather(d.env, d.slices, port, f)
	s := d.work.selection(d.env, true)
	a := PoolDecision{Port: *port, Family: f, Cluster: s.origin}
	for i := range d.work.found {
		c := &d.work.found[i]
		a.count(d.work.of(c), c, &s)
	}
	for i, slice := range d.slices {
		d.decideSlice(&a, i, slice, &s)
	}
	return a
}

// count takes in a candidate.
func (a *PoolDecision) count(e *model.Endpoint, c *candidate, s *selection) {
	switch {
	case c.usable && e.Hints != nil:
		a.Hinted++
	case c.usable:
		a.Unhinted++
	}
	switch {
	case s.local(c) != InPool:
	case c.usable:
		a.Local = FromReady
	default:
		a.Local = FromTerminating
	}
}

// decideSlice adds the fates of a slice's endpoints. Slices of the Service's other
// family belong to another account.
func (d *draft) decideSlice(a *PoolDecision, at int, slice *model.Slice, s *selection) {
	if slice.Family != a.Family {
		if !d.hasFamily(slice.Family) && d.env.serves(slice.Family) {
			d.leaveOutAll(a, slice, OtherFamily)
		}
		return
	}
	served := false
	for i := range slice.Ports {
		p := &slice.Ports[i]
		if !serves(p, &a.Port) {
			continue
		}
		served = true
		for j := range slice.Endpoints {
			a.Endpoints = append(a.Endpoints, d.decideEndpoint(at, j, p.Port, s))
		}
	}
	if !served {
		d.leaveOutAll(a, slice, NoSuchPort)
	}
}

func (d *draft) leaveOutAll(a *PoolDecision, slice *model.Slice, why Reason) {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		a.Endpoints = append(a.Endpoints, EndpointDecision{Slice: slice.Name, Endpoint: e, Local: d.env.local(e), InCluster: why, InLocal: why})
	}
}

func (d *draft) decideEndpoint(slice, endpoint int, port uint16, s *selection) EndpointDecision {
	in := d.slices[slice]
	e := &in.Endpoints[endpoint]
	f := EndpointDecision{Slice: in.Name, Endpoint: e, Port: port, Local: d.env.local(e)}
	f.InCluster = candidacy(e, in.Family)
	if f.InCluster != InPool {
		f.InLocal = f.InCluster
		return f
	}
	// Of twins one is left. It sorts directly after what would be the first.
	first := candidateAt(e.Addr, port)
	first.usable, first.fallback, first.slice = true, true, -1
	i, _ := slices.BinarySearchFunc(d.work.found, first, candidate.compare)
	c := &d.work.found[i]
	if int(c.slice) != slice || int(c.endpoint) != endpoint {
		f.InCluster, f.InLocal = Duplicate, Duplicate
		return f
	}
	f.InCluster, f.InLocal = s.cluster(c), s.local(c)
	return f
}
