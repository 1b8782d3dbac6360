package iptables

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/plan"
)

// environment is what holds for all rules of a family.
type environment struct {
	words    *wording
	detector plan.Detector
}

// condition is who a rule is for.
type condition struct {
	not    bool
	source netip.Prefix
	in     string
	node   bool // the node itself
}

func (c condition) on(r rule) rule {
	switch {
	case c.in != "":
		r.in, r.notIn = c.in, c.not
	case c.node:
		r.match = fromNode + r.match
	case c.source.IsValid():
		r.source, r.notSource = c.source, c.not
	}
	return r
}

// pods are the conditions of which pods fulfil one.
func (e *environment) pods() []condition {
	d := &e.detector
	switch {
	case d.Interface != "":
		return []condition{{in: d.Interface}}
	case d.InterfacePrefix != "":
		return []condition{{in: startingWith(d.InterfacePrefix)}}
	}
	var list []condition
	for _, s := range d.Sources {
		list = append(list, condition{source: s})
	}
	return list
}

// startingWith is how iptables is told of interfaces by the start of their names. One
// that is as long as a name can be is that of one interface, and has no room for more.
func startingWith(prefix string) string {
	if len(prefix) >= unix.IFNAMSIZ-1 {
		return prefix
	}
	return prefix + "+"
}

// inside are the conditions of which pods and the node itself fulfil one.
func (e *environment) inside() []condition { return append(e.pods(), condition{node: true}) }

// marking is what sends whose packets to which chain, for them to be
// masqueraded.
func (e *environment) marking(m plan.Masquerade) (who condition, to string, any bool) {
	switch m {
	case plan.MasqueradeAlways:
		return condition{}, markChain, true
	case plan.MasqueradeNode:
		return condition{node: true}, markChain, true
	case plan.MasqueradeOffCluster:
		switch pods := e.pods(); {
		case len(pods) == 0:
		case len(pods) > 1 || pods[0].in == "" && pods[0].source.Bits() == 0:
			return condition{}, markOffClusterChain, true
		default:
			pods[0].not = true
			return pods[0], markChain, true
		}
	}
	return condition{}, "", false
}

// policy is where connections go, and whose are masqueraded.
type policy struct {
	env        *environment
	route      *pool
	outside    *pool // nil when all go to route
	masquerade plan.Masquerade
	frontends  []*plan.Frontend
	filtered   bool   // for one of them
	chain      string // "" if its rules stand with each frontend
}

func (p *policy) keys() []plan.Key {
	var keys []plan.Key
	for _, f := range p.frontends {
		keys = append(keys, f.Key)
	}
	return keys
}

// count tells the pools how often they are used.
func (p *policy) count() {
	if p.outside == nil {
		p.route.uses += len(p.frontends)
		return
	}
	p.route.uses += len(p.frontends) * len(p.env.inside())
	p.outside.uses += len(p.frontends)
}

// size is how many rules write writes, 0 if there is no endpoint.
func (p *policy) size() int {
	n := p.route.size()
	if p.outside != nil {
		if n+p.outside.size() == 0 {
			return 0
		}
		n = len(p.env.inside())*max(n, 1) + p.outside.size()
	}
	if _, _, any := p.env.marking(p.masquerade); any && n > 0 {
		n++
	}
	return n
}

// write writes the policy's rules.
func (p *policy) write(to *chainText, base rule) {
	if who, chain, any := p.env.marking(p.masquerade); any {
		r := who.on(base)
		r.target = jump(chain)
		to.add(r)
	}
	if p.outside == nil {
		p.route.lead(to, base)
		return
	}
	for _, who := range p.env.inside() {
		r := who.on(base)
		if p.route.size() == 0 {
			r.target = jump("RETURN")
			to.add(r)
			continue
		}
		p.route.lead(to, r)
	}
	p.outside.lead(to, base)
}

// forward is the entry of a frontend whose connections go somewhere.
type forward struct {
	f *plan.Frontend
	*policy
}

func (e *forward) weight() int {
	if e.chain != "" {
		return 1
	}
	return e.size()
}

func (e *forward) write(p *chainText) {
	p.own(e.f.Key)
	p.comment = commentOf(e.f)
	r := match(e.f)
	if e.chain == "" {
		e.policy.write(p, r)
		return
	}
	r.target = leave(e.chain)
	p.add(r)
}

// admission is the entry of a frontend that not everybody may connect to.
type admission struct {
	f     *plan.Frontend
	chain string
}

func (e *admission) weight() int { return 1 }

func (e *admission) write(p *chainText) {
	p.own(e.f.Key)
	p.comment = commentOf(e.f)
	r := match(e.f)
	r.target = leave(e.chain)
	p.add(r)
}
