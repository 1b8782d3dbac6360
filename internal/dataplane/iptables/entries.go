//go:build linux

package iptables

import (
	"slices"

	"sluice/internal/plan"
)

// forward is the entry, in table nat, of a frontend whose connections go to
// endpoints.
type forward struct {
	f     *plan.Frontend
	to    *routing
	chain string // that of the routing, or one that admits sources; "" for neither
}

func (e *forward) weight() int {
	if e.chain != "" {
		return 1
	}
	return e.to.size()
}

func (e *forward) write(text *chainText) {
	text.own, text.comment = []plan.Key{e.f.Key}, commentOf(e.f)
	r := match(e.f)
	if e.chain == "" {
		e.to.write(text, r)
		return
	}
	r.target = leave(e.chain)
	text.add(r)
}

// refusal is the entry, in table filter, of a frontend at which connections that were
// not translated are refused, because there is no endpoint for them.
type refusal struct {
	f   *plan.Frontend
	env *environment
}

// refuses reports whether a rule is needed to refuse connections that take a route.
func refuses(r *plan.Route) bool { return len(r.Endpoints) == 0 && r.Empty.Verdict != plan.Pass }

// divided reports whether pods and the node meet another verdict than others.
func (e *refusal) divided() bool {
	outside := e.f.Outside
	return outside != nil && refuses(&e.f.Route) && refuses(outside) && outside.Empty != e.f.Route.Empty
}

func (e *refusal) weight() int {
	outside := e.f.Outside
	switch {
	case e.divided():
		return len(e.env.inside()) + 1
	case refuses(&e.f.Route) || outside != nil && refuses(outside):
		return 1
	}
	return 0
}

func (e *refusal) write(text *chainText) {
	if e.weight() == 0 {
		return
	}
	text.own = []plan.Key{e.f.Key}
	base := match(e.f)
	last := e.f.Route.Empty
	if outside := e.f.Outside; outside != nil && refuses(outside) {
		last = outside.Empty
	}
	if e.divided() {
		for _, from := range e.env.inside() {
			e.refuse(text, from.on(base), e.f.Route.Empty)
		}
	}
	e.refuse(text, base, last)
}

func (e *refusal) refuse(text *chainText, r rule, by plan.Refusal) {
	r.comment = idOf(e.f).String() + " has no endpoints"
	if by.Cause == plan.NoLocalEndpoints {
		r.comment = idOf(e.f).String() + " has no local endpoints"
	}
	r.target = "-j DROP"
	if by.Verdict == plan.Reject {
		r.target = "-j REJECT --reject-with " + e.env.words.rejection(e.f.Protocol)
	}
	text.add(r)
}

// firewall is the entry, in table filter, of a frontend with source ranges, at which
// connections that were not translated are dropped.
type firewall struct {
	f       *plan.Frontend
	refusal *refusal
}

// admits reports whether admitted sources must pass, to be refused further on or left alone.
func (e *firewall) admits() bool {
	return slices.ContainsFunc(e.f.Routes(), func(r *plan.Route) bool { return len(r.Endpoints) == 0 })
}

func (e *firewall) weight() int {
	if e.admits() {
		return len(e.f.Sources) + 1
	}
	return 1
}

func (e *firewall) write(text *chainText) {
	text.own = []plan.Key{e.f.Key}
	r := match(e.f)
	if e.admits() {
		for _, s := range e.f.Sources {
			r.source, r.target = s, jump("RETURN")
			text.add(r)
		}
		r = match(e.f)
	}
	r.comment = idOf(e.f).String() + " admits certain sources only"
	r.target = "-j DROP"
	text.add(r)
}

// portFirewall is the entry, in table filter, of a node port with source ranges, at which
// connections that were not translated are dropped, or refused where the source is admitted.
type portFirewall struct {
	*refusal
	chain string // drops what is not admitted
}

func (e *portFirewall) weight() int { return 1 + e.refusal.weight() }

func (e *portFirewall) write(text *chainText) {
	text.own = []plan.Key{e.f.Key}
	r := match(e.f)
	r.target = jump(e.chain)
	text.add(r)
	e.refusal.write(text)
}

func (e *portFirewall) writeChain(out chainTexts) {
	text := out.begin(e.chain)
	text.own, text.comment = []plan.Key{e.f.Key}, commentOf(e.f)
	for _, s := range e.f.Sources {
		text.add(rule{source: s, target: jump("RETURN")})
	}
	text.add(rule{comment: idOf(e.f).String() + " admits certain sources only", target: "-j DROP"})
}

func match(f *plan.Frontend) rule {
	r := rule{protocol: protocolName(f.Protocol), port: f.Key.Port, last: f.Key.Port}
	if !f.NodePort() {
		r.destination = single(f.Addr)
	}
	return r
}

func commentOf(f *plan.Frontend) string {
	kind := [...]string{
		plan.ClusterIP:      " cluster IP",
		plan.LoadBalancerIP: " loadbalancer IP",
		plan.ExternalIP:     " external IP",
		plan.NodePort:       "",
	}[f.Kind]
	return idOf(f).String() + kind
}
