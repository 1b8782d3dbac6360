package plan

import (
	"fmt"
	"math"

	"sluice/internal/model"
)

// drain takes endpoints of weight 0 out of what may get new connections, unless
// there would be none left. They keep their flows.
func (cs *candidates) drain() {
	usable := cs.any(func(c *candidate) bool { return c.usable })
	some := func(c *candidate) bool { return c.weight > 0 && (c.usable || !usable && c.fallback) }
	if !cs.any(some) {
		cs.weighted = false
		cs.allZero = cs.any(func(c *candidate) bool { return c.usable || c.fallback })
		return
	}
	for i := range cs.found {
		if c := &cs.found[i]; c.weight == 0 {
			c.serving = c.serving || c.usable
			c.usable, c.fallback = false, false
		}
	}
}

// drained reports whether a candidate gets no new connections because its
// weight is 0.
func (cs *candidates) drained(c *candidate) bool { return cs.weighted && c.weight == 0 }

// pool returns the wanted candidates as endpoints with weights, unless all have
// the same.
func (cs *candidates) pool(wanted func(*candidate) bool) []Endpoint {
	out := cs.endpoints(wanted)
	if !cs.weighted {
		return out
	}
	least, most := uint16(math.MaxUint16), uint16(0)
	at := 0
	for i := range cs.found {
		if c := &cs.found[i]; wanted(c) {
			out[at].Weight = c.weight
			least, most = min(least, c.weight), max(most, c.weight)
			at++
		}
	}
	if least == most {
		for i := range out {
			out[i].Weight = 0
		}
	}
	return out
}

// chooseAlgorithm decides on the algorithm of the Service, if it can be used here.
func (d *draft) chooseAlgorithm() {
	d.algorithm = d.env.algorithmOf(d.service)
	if !d.env.algorithms.Has(d.algorithm) {
		d.useRandom(fmt.Sprintf("%s is not available in the proxy mode of this node", d.algorithm),
			"choose one of these: "+d.env.algorithms.String()+"; or another proxy mode")
		return
	}
	if d.algorithm == model.LeastConnections && d.env.balancer != nil {
		d.checkLeastConnections()
	}
	if why, refused := d.env.maglevTables.refused[d.service.Name]; refused && d.algorithm == model.Maglev {
		d.useRandom("maglev is not available: "+why, "choose source-hash, or remove maglev from other Services")
	}
}

// algorithmOf is the algorithm that a Service asks for.
func (env *environment) algorithmOf(svc *model.Service) model.Algorithm {
	if !svc.AlgorithmChosen && svc.Algorithm == model.Random {
		return env.defaultAlgorithm
	}
	return svc.Algorithm
}

// checkLeastConnections reports where connections cannot be counted.
func (d *draft) checkLeastConnections() {
	switch {
	case d.service.Affinity > 0:
		d.useRandom("least-connections is not available with session affinity, which "+d.env.balancer.Name+" cannot keep exactly",
			"remove the annotation, or set sessionAffinity to None")
	case d.service.ExternalPolicy == model.PolicyLocal:
		d.problemOnce(model.Problem{
			Field:  "metadata.annotations",
			Reason: "least-connections is for clients in the cluster only under externalTrafficPolicy Local: clients outside get any endpoint on the node",
			Remedy: "remove the annotation, or set externalTrafficPolicy to Cluster",
		})
	}
}

// delegate decides whether the kernel's balancer chooses the endpoints of a route. What
// depends on the client's address, here or for session affinity, must be the same on every
// node and in every mode, and balancers do not choose at random. Where one chooses an address
// of the node itself for a packet of the node, the kernel sends that packet the way it took to
// the frontend: out. Packets that are to be left alone must not be led to the node.
func (d *draft) delegate(f *Frontend) {
	if d.env.balancer == nil {
		return
	}
	r, onNode, passes := &f.Route, d.env.isEndpoint(&f.Route), d.passes(f)
	byDefault := r.Algorithm == model.Random && !d.service.AlgorithmChosen
	counts := r.Algorithm == model.RoundRobin || r.Algorithm == model.LeastConnections
	if d.service.Affinity == 0 && !onNode && !passes && (byDefault || counts) {
		r.Balancer = d.env.balancer
	}
	if r.Delegated() || r.Algorithm != model.LeastConnections {
		return
	}
	switch {
	case onNode:
		r.Algorithm = model.Random
		d.problemOnce(model.Problem{
			Field: "metadata.annotations",
			Reason: "least-connections is not available where this node itself is an endpoint, to which " + d.env.balancer.Name +
				" cannot deliver packets of the node itself; random is used",
			Remedy: "remove the annotation, choose round-robin, or take pods out of the node's network",
		})
	case passes:
		r.Algorithm = model.Random
		d.problemOnce(model.Problem{
			Field: "metadata.annotations",
			Reason: "least-connections is not available at external addresses whose packets are left alone without an endpoint, because " +
				d.env.balancer.Name + " takes all packets to an address; random is used there",
			Remedy: "remove the annotation that chooses the algorithm, or choose round-robin",
		})
	}
}

// useRandom reports why the algorithm of the Service is not used.
func (d *draft) useRandom(reason, remedy string) {
	d.algorithm = model.Random
	d.problemOnce(model.Problem{Field: "metadata.annotations", Reason: reason + "; random is used", Remedy: remedy})
}

// problemOnce adds a problem of the Service, which several of its ports may have.
func (d *draft) problemOnce(p model.Problem) {
	p.Object = model.ServiceObject(d.service.Name)
	for _, known := range d.problems {
		if known == p {
			return
		}
	}
	d.problems = append(d.problems, p)
}

// balance sets the algorithm of the pools of a service port, and whether the proxy itself
// chooses. Whether there are too
// many endpoints for it must not depend on the node, so all of them count.
func (d *draft) balance(port *model.ServicePort, pools *pools) {
	if d.work.allZero {
		d.problemOnce(model.Problem{
			Reason: fmt.Sprintf("all endpoints of port %s have weight 0; weights are ignored", portText(port)),
			Remedy: "give some of its EndpointSlices a weight above 0",
		})
	}
	algorithm := d.algorithm
	if n := len(d.work.found); algorithm == model.Maglev && n > MaxMaglevEndpoints {
		algorithm = model.Random
		d.problemOnce(model.Problem{
			Field:  "metadata.annotations",
			Reason: fmt.Sprintf("port %s has %d endpoints, and maglev is for at most %d; random is used", portText(port), n, MaxMaglevEndpoints),
			Remedy: "split the Service, or choose source-hash",
		})
	}
	var balancer *Balancer
	if d.env.proxyConnects && ProxyForwards(port.Protocol) {
		balancer = itself
	}
	pools.cluster.Algorithm, pools.cluster.Balancer = algorithm, balancer
	if pools.local != nil {
		pools.local.Algorithm, pools.local.Balancer = algorithm, balancer
	}
}

func portText(port *model.ServicePort) string {
	if port.Name != "" {
		return port.Name
	}
	return fmt.Sprintf("%d/%s", port.Port, port.Protocol)
}
