package plan

import (
	"cmp"
	"fmt"
	"slices"

	"sluice/internal/model"
)

// Limits are what Services may ask for and a mechanism cannot do. What a Service asks for in vain is
// a problem of it. The zero value is that of a mechanism that can do all.
type Limits struct {
	// Mechanism is what is limited, for people, and System what they call it.
	Mechanism string
	System    System
	// NoSCTP leaves out ports of SCTP.
	NoSCTP bool
	// NoSourceRanges admits everybody everywhere.
	NoSourceRanges bool
	// NoAffinityTimeout means that session affinity lasts for as long as the mechanism decides.
	NoAffinityTimeout bool
	// NoWeights chooses all endpoints of a pool as often, except that those of weight 0 are not chosen.
	NoWeights bool
	// NoRefusal leaves packets alone for which there is no endpoint: they are neither rejected nor
	// dropped on purpose.
	NoRefusal bool
	// OneRoute leads all clients of a frontend to the same endpoints: under external traffic policy
	// Local pods and the node itself do not reach those on other nodes.
	OneRoute bool
	// OwnSource means that the mechanism decides which source address endpoints see, but for external traffic
	// policy Local: then it is asked to keep that of clients.
	OwnSource bool
	// OneTargetPort leads connections to endpoints of one port only: that of most of them, and of
	// those the lowest.
	OneTargetPort bool
}

// System is what a mode programs. The zero value is the kernel.
type System string

func (s System) String() string { return cmp.Or(string(s), "the kernel") }

// Name is what heads a line about it.
func (s System) Name() string { return cmp.Or(string(s), "kernel") }

// usualAffinity is the timeout, in seconds, of a Service that does not say one.
const usualAffinity = 10800

// checkLimits reports what the Service asks for in vain, except for what depends on its endpoints.
func (d *draft) checkLimits() {
	l, svc := &d.env.limits, d.service
	if l.NoSourceRanges && svc.Filtered {
		d.problemOnce(model.Problem{
			Field:  "spec.loadBalancerSourceRanges",
			Reason: "everybody may connect: " + l.Mechanism + " does not look at the source of connections",
			Remedy: "restrict the clients at the load balancer, or by a NetworkPolicy",
		})
	}
	if l.NoAffinityTimeout && svc.Affinity != 0 && svc.Affinity != usualAffinity {
		d.problemOnce(model.Problem{
			Field:  "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
			Reason: "clients keep their endpoint for another time: " + l.Mechanism + " has no timeout for that",
			Remedy: "leave it out, or have its clients run on nodes in another proxy mode",
		})
	}
	if !l.NoSCTP {
		return
	}
	for _, p := range svc.Ports {
		if p.Protocol == model.SCTP {
			d.problemOnce(model.Problem{
				Field:  "spec.ports",
				Reason: fmt.Sprintf("port %d/%s is not served: %s does TCP and UDP only", p.Port, p.Protocol, l.Mechanism),
				Remedy: "have its clients run on nodes in another proxy mode",
			})
		}
	}
}

// cannotServe reports whether a port is left out.
func (l *Limits) cannotServe(p *model.ServicePort) bool { return l.NoSCTP && p.Protocol == model.SCTP }

// limit changes pools to what can be done.
func (d *draft) limit(p *pools) {
	l := &d.env.limits
	for _, r := range []*Route{&p.cluster, p.local} {
		if r == nil {
			continue
		}
		if l.NoWeights && r.Weighted() {
			d.ignoreWeights(r)
		}
		if l.OneTargetPort {
			d.keepOnePort(r)
		}
		if l.NoRefusal && len(r.Endpoints) == 0 {
			r.Empty.Verdict = Pass
		}
	}
}

// ignoreWeights gives all endpoints the same.
func (d *draft) ignoreWeights(r *Route) {
	r.Endpoints = slices.Clone(r.Endpoints)
	for i := range r.Endpoints {
		r.Endpoints[i].Weight = 0
	}
	d.problemOnce(model.Problem{
		Field:  "metadata.annotations",
		Reason: "the weights of EndpointSlices do not count: " + d.env.limits.Mechanism + " gives all endpoints the same",
		Remedy: "have its clients run on nodes in another proxy mode, or leave out the weights",
	})
}

// keepOnePort leaves out the endpoints of all ports but one.
func (d *draft) keepOnePort(r *Route) {
	if len(r.Endpoints) == 0 || !slices.ContainsFunc(r.Endpoints, func(e Endpoint) bool { return e.Port() != r.Endpoints[0].Port() }) {
		return
	}
	counts := map[uint16]int{}
	for _, e := range r.Endpoints {
		counts[e.Port()]++
	}
	var port uint16
	for p, n := range counts {
		if m := counts[port]; n > m || n == m && p < port {
			port = p
		}
	}
	all := len(r.Endpoints)
	r.Endpoints = slices.DeleteFunc(slices.Clone(r.Endpoints), func(e Endpoint) bool { return e.Port() != port })
	d.problemOnce(model.Problem{
		Field: "spec.ports",
		Reason: fmt.Sprintf("%d of %d endpoints get no connections: they have other ports than %d, and %s leads an address and port to one port only",
			all-len(r.Endpoints), all, port, d.env.limits.Mechanism),
		Remedy: "give the container port the same number in all Pods of the Service, instead of its name only",
	})
}
