package plan

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// Census counts the endpoints of a Service by their addresses: one that serves
// several ports counts once, and a pod of a dual-stack Service in each family.
type Census struct {
	Used        int // connections from or through this node may go there
	LeftOut     int // the others
	Ready       int // those that are ready, used or not
	Terminating int // those that are terminating, used or not
}

// Plus adds up.
func (c Census) Plus(o Census) Census {
	return Census{c.Used + o.Used, c.LeftOut + o.LeftOut, c.Ready + o.Ready, c.Terminating + o.Terminating}
}

// person is an endpoint of a slice, as a census sees it.
type person struct {
	addr                     netip.Addr
	used, ready, terminating bool
}

// Census counts the endpoints of the Service.
func (e *Evidence) Census() (c Census) {
	if e.Service == nil {
		return c
	}
	people := e.people()
	slices.SortFunc(people, func(a, b person) int { return a.addr.Compare(b.addr) })
	for len(people) > 0 {
		one := people[0]
		for people = people[1:]; len(people) > 0 && people[0].addr == one.addr; people = people[1:] {
			one.used = one.used || people[0].used
			one.ready = one.ready || people[0].ready
			one.terminating = one.terminating || people[0].terminating
		}
		c = c.Plus(one.census())
	}
	return c
}

func (p person) census() Census {
	count := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	return Census{count(p.used), count(!p.used), count(p.ready), count(p.terminating)}
}

// people are all endpoints of the families that the Service has.
func (e *Evidence) people() []person {
	d := draft{service: e.Service, env: &e.env, slices: e.Slices, work: &candidates{}}
	d.collectAddresses()
	var people []person
	first := make([]int, len(e.Slices)) // of each slice
	for i, s := range e.Slices {
		first[i] = len(people)
		if !d.hasFamily(s.Family) {
			continue
		}
		for j := range s.Endpoints {
			at := &s.Endpoints[j]
			people = append(people, person{at.Addr, false, usable(at), at.Conditions.Has(model.Terminating)})
		}
	}
	cluster, local := poolsInUse(e.Service)
	for _, f := range model.Families {
		for i := range e.Service.Ports {
			d.work.gather(d.env, d.slices, &e.Service.Ports[i], f)
			if len(d.work.found) == 0 || !d.hasFamily(f) {
				continue
			}
			s := d.work.selection(d.env, local)
			for j := range d.work.found {
				if c := &d.work.found[j]; cluster && s.cluster(c) == InPool || local && s.local(c) == InPool {
					people[first[c.slice]+int(c.endpoint)].used = true
				}
			}
		}
	}
	return people
}

// poolsInUse tells which pools the frontends of a Service send connections to.
func poolsInUse(svc *model.Service) (cluster, local bool) {
	external := len(svc.LoadBalancerIPs) > 0 || len(svc.ExternalIPs) > 0 ||
		slices.ContainsFunc(svc.Ports, func(p model.ServicePort) bool { return p.NodePort != 0 })
	internalLocal, _ := localFor(svc, ClusterIP)
	_, externalLocal := localFor(svc, NodePort)
	return !internalLocal || external, internalLocal || external && externalLocal
}
