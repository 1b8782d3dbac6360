package plan

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// Evidence holds the inputs to the plan of one Service. It explains the plan by
// the rules that planning itself follows.
type Evidence struct {
	Service *model.Service // nil if there is none of that name
	Slices  []*model.Slice
	// Ejected are the endpoints that do not answer.
	Ejected []model.Ejection
	env     environment
	// frontends are those of plan, which is what the Service asks for, that it holds, and lost
	// the others.
	frontends []*Frontend
	lost      []Lost
	plan      servicePlan
}

// Lost is a frontend that a Service asks for and another one, To, has.
type Lost struct {
	*Frontend
	To model.Name
}

// PoolDecision explains how the pools of one service port in one family were
// selected.
type PoolDecision struct {
	Port   model.ServicePort
	Family model.Family
	// Endpoints are the decisions on all endpoints in the slices, in their
	// order.
	Endpoints []EndpointDecision
	// Cluster and Local are the origins of the two pools.
	Cluster, Local Origin
	// Hinted and Unhinted count the ready endpoints with and without hints.
	Hinted, Unhinted int
}

// EndpointDecision is the decision on one endpoint of a slice.
type EndpointDecision struct {
	Slice    model.Name
	Endpoint *model.Endpoint
	Port     uint16 // of the endpoint for the service port; 0 for none
	Local    bool   // it runs on this node
	// InCluster and InLocal are why the endpoint is not in each pool, or
	// InPool.
	InCluster, InLocal Reason
	// Ejection is set if the endpoint does not answer.
	Ejection *model.Ejection
}

// Evidence returns the inputs to the plan of a Service. It is cheap, and the
// result does not change with the State.
func (p *Planner) Evidence(state *model.State, name model.Name) Evidence {
	e := Evidence{Service: state.Service(name), Slices: slices.Clone(state.Slices(name)), Ejected: state.Ejected(name), env: p.env}
	if c := p.services[name]; c != nil {
		e.plan = c.plan
		for _, f := range c.plan.frontends {
			if held := p.desired.Frontends[p.winner(f.Key)]; held.Service == name && held.Key == f.Key {
				e.frontends = append(e.frontends, held)
			} else {
				e.lost = append(e.lost, Lost{f, held.Service})
			}
		}
	}
	return e
}

// Frontends returns the frontends that a Service holds, sorted by key.
func (p *Planner) Frontends(service model.Name) (held []*Frontend) {
	c := p.services[service]
	if c == nil {
		return nil
	}
	for _, f := range c.plan.frontends {
		if holder := p.desired.Frontends[f.Key]; holder != nil && holder.Service == service {
			held = append(held, holder)
		}
	}
	return held
}

// NodeName returns the name of this node.
func (e *Evidence) NodeName() string { return e.env.nodeName }

// Zone returns the zone of this node, "" if it has none.
func (e *Evidence) Zone() string { return e.env.zone }

// Limits are what the mode cannot do.
func (e *Evidence) Limits() Limits { return e.env.limits }

// Frontends returns the frontends that the Service holds, sorted by key.
func (e *Evidence) Frontends() []*Frontend { return e.frontends }

// Lost returns the frontends that the Service asks for and other ones have, sorted by key.
func (e *Evidence) Lost() []Lost { return e.lost }

// Unserved are the ports and port ranges of the Service that no frontend of it is for, because this node does
// not serve their protocol, or no ranges. It has been reported for each.
func (e *Evidence) Unserved() (ports []string) {
	if e.Service == nil {
		return nil
	}
	served := func(p *model.ServicePort, is func(*Frontend) bool) bool {
		return slices.ContainsFunc(e.plan.frontends, func(f *Frontend) bool { return f.Port == p.Name && f.Protocol == p.Protocol && is(f) })
	}
	for i := range e.Service.Ports {
		p := &e.Service.Ports[i]
		if e.env.nodePortsOnly && p.NodePort == 0 {
			continue
		}
		if !served(p, func(f *Frontend) bool { return !f.IsRange() }) {
			ports = append(ports, fmt.Sprintf("port %d/%s", p.Port, p.Protocol))
		}
		if len(p.Ranges) > 0 && !served(p, (*Frontend).IsRange) { // all of them or none
			ports = append(ports, fmt.Sprintf("ports %s/%s", p.Ranges[0], p.Protocol))
		}
	}
	return ports
}

// PoolDecision explains the pools of the service port that a frontend belongs to.
// It returns nil if the Service has no such port.
func (e *Evidence) PoolDecision(f *Frontend) *PoolDecision {
	if e.Service == nil {
		return nil
	}
	d := draft{service: e.Service, env: &e.env, slices: e.Slices, work: &candidates{}}
	d.work.ejected = d.ejected(e.Ejected)
	d.collectAddresses()
	if !d.hasFamily(f.Family()) {
		return nil
	}
	for i := range e.Service.Ports {
		p := &e.Service.Ports[i]
		number := p.Port
		if f.Kind == NodePort {
			number = p.NodePort
		}
		answers := number == f.Key.Port && !f.IsRange() || f.IsRange() && slices.Contains(p.Ranges, f.Ports())
		if p.Name == f.Port && p.Protocol == f.Protocol && answers {
			return d.decidePools(p, f.Family())
		}
	}
	return nil
}

func (d *draft) decidePools(port *model.ServicePort, f model.Family) *PoolDecision {
	d.work.gather(d.env, d.slices, port, f)
	s := d.work.selection(d.env, true)
	p := &PoolDecision{Port: *port, Family: f, Cluster: s.origin}
	for i := range d.work.found {
		c := &d.work.found[i]
		p.count(d.work.of(c), c, &s)
	}
	for i, slice := range d.slices {
		d.decideSlice(p, i, slice, &s)
	}
	return p
}

// count adds a candidate.
func (p *PoolDecision) count(e *model.Endpoint, c *candidate, s *selection) {
	switch {
	case c.usable && e.Hints != nil:
		p.Hinted++
	case c.usable:
		p.Unhinted++
	}
	switch {
	case s.local(c) != InPool:
	case c.usable:
		p.Local = FromReady
	default:
		p.Local = FromTerminating
	}
}

// decideSlice adds the decisions on a slice's endpoints. Slices of the
// Service's other family belong to another PoolDecision.
func (d *draft) decideSlice(p *PoolDecision, at int, slice *model.Slice, s *selection) {
	if slice.Family != p.Family {
		if !d.hasFamily(slice.Family) && d.env.serves(slice.Family) {
			d.leaveOutAll(p, slice, OtherFamily)
		}
		return
	}
	served := false
	for i := range slice.Ports {
		port := &slice.Ports[i]
		if !serves(port, p.Port.Name, p.Port.Protocol) {
			continue
		}
		served = true
		for j := range slice.Endpoints {
			p.Endpoints = append(p.Endpoints, d.decideEndpoint(at, j, port, s))
		}
	}
	if !served {
		d.leaveOutAll(p, slice, MissingPort)
	}
}

func (d *draft) leaveOutAll(p *PoolDecision, slice *model.Slice, why Reason) {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		p.Endpoints = append(p.Endpoints, EndpointDecision{Slice: slice.Name, Endpoint: e, Local: d.env.local(e), InCluster: why, InLocal: why})
	}
}

func (d *draft) decideEndpoint(slice, endpoint int, at *model.SlicePort, s *selection) EndpointDecision {
	in := d.slices[slice]
	e := &in.Endpoints[endpoint]
	out := EndpointDecision{Slice: in.Name, Endpoint: e, Port: at.Port, Local: d.env.local(e)}
	out.InCluster = candidacy(e, in.Family)
	if out.InCluster != InPool {
		out.InLocal = out.InCluster
		return out
	}
	// Of duplicates one is left. It sorts directly after the best possible one.
	first := candidateAt(e.Addr, at.Port)
	first.usable, first.fallback, first.weight, first.slice = true, true, math.MaxUint16, -1
	i, _ := slices.BinarySearchFunc(d.work.found, first, candidate.compare)
	c := &d.work.found[i]
	if int(c.slice) != slice || int(c.endpoint) != endpoint {
		out.InCluster, out.InLocal = Duplicate, Duplicate
		return out
	}
	out.InCluster, out.InLocal = s.cluster(c), s.local(c)
	if c.ejected {
		i := slices.IndexFunc(d.work.ejected, func(o model.Ejection) bool {
			return o.Endpoint == netip.AddrPortFrom(e.Addr, at.Port) && o.Protocol == at.Protocol
		})
		out.Ejection = &d.work.ejected[i]
	}
	return out
}
