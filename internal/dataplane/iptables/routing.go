package iptables

import "sluice/internal/plan"

// routing is where connections of some frontends of a service port go, and which
// are masqueraded.
type routing struct {
	env        *environment
	route      *pool
	outside    *pool // nil if all go to route
	masquerade plan.Masquerade
	keys       []plan.Key // of those frontends
	filtered   bool       // for one of them
	chain      string     // "" if its rules are repeated for each frontend
}

// countUses adds to how often the pools are used.
func (rt *routing) countUses() {
	if rt.outside == nil {
		rt.route.uses += len(rt.keys)
		return
	}
	rt.route.uses += len(rt.keys) * len(rt.env.inside())
	rt.outside.uses += len(rt.keys)
}

// size is how many rules write writes, 0 if there is no endpoint.
func (rt *routing) size() int {
	n := rt.route.size()
	if rt.outside != nil {
		if n+rt.outside.size() == 0 {
			return 0
		}
		n = len(rt.env.inside())*max(n, 1) + rt.outside.size()
	}
	if _, _, any := rt.env.marking(rt.masquerade); any && n > 0 {
		n++
	}
	return n
}

func (rt *routing) write(text *chainText, base rule) {
	if from, chain, any := rt.env.marking(rt.masquerade); any {
		r := from.on(base)
		r.target = jump(chain)
		text.add(r)
	}
	if rt.outside == nil {
		rt.route.jump(text, base)
		return
	}
	for _, from := range rt.env.inside() {
		r := from.on(base)
		if rt.route.size() == 0 {
			r.target = jump("RETURN")
			text.add(r)
			continue
		}
		rt.route.jump(text, r)
	}
	rt.outside.jump(text, base)
}
