package iptables

import (
	"sluice/internal/plan"
)

// refusal is the entry of a frontend at which connections that were not
// translated are refused, because there is no endpoint for them.
type refusal struct {
	f   *plan.Frontend
	env *environment
}

// divided tells whether those inside meet another verdict than those outside.
func (e *refusal) divided() bool {
	out := e.f.Outside
	return out != nil && len(e.f.Route.Endpoints) == 0 && len(out.Endpoints) == 0 && out.Empty != e.f.Route.Empty
}

func (e *refusal) weight() int {
	out := e.f.Outside
	switch {
	case e.divided():
		return len(e.env.inside()) + 1
	case len(e.f.Route.Endpoints) == 0 || out != nil && len(out.Endpoints) == 0:
		return 1
	}
	return 0
}

func (e *refusal) write(p *chainText) {
	if e.weight() == 0 {
		return
	}
	p.own(e.f.Key)
	base := match(e.f)
	last := e.f.Route.Empty
	if out := e.f.Outside; out != nil && len(out.Endpoints) == 0 {
		last = out.Empty
	}
	if e.divided() {
		for _, who := range e.env.inside() {
			e.refuse(p, who.on(base), e.f.Route.Empty)
		}
	}
	e.refuse(p, base, last)
}

func (e *refusal) refuse(p *chainText, r rule, by plan.Refusal) {
	r.comment = idOf(e.f).String() + " has no endpoints"
	if by.Cause == plan.NoLocalEndpoint {
		r.comment = idOf(e.f).String() + " has no local endpoints"
	}
	r.target = "-j DROP"
	if by.Verdict == plan.Reject {
		r.target = "-j REJECT --reject-with " + e.env.words.rejection(e.f.Protocol)
	}
	p.add(r)
}

// firewall is the entry of a frontend that not everybody may connect to, at
// which those are dropped that were not translated.
type firewall struct {
	f       *plan.Frontend
	refusal *refusal
}

// admits tells whether those who may connect must be let through to be
// refused further on.
func (e *firewall) admits() bool { return e.refusal.weight() > 0 }

func (e *firewall) weight() int {
	if e.admits() {
		return len(e.f.Sources) + 1
	}
	return 1
}

func (e *firewall) write(p *chainText) {
	p.own(e.f.Key)
	r := match(e.f)
	if e.admits() {
		for _, s := range e.f.Sources {
			r.source, r.target = s, jump("RETURN")
			p.add(r)
		}
		r = match(e.f)
	}
	r.comment = idOf(e.f).String() + " admits certain sources only"
	r.target = "-j DROP"
	p.add(r)
}
