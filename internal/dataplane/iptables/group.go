package iptables

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// portID names a port of a Service in one family.
type portID struct {
	service  model.Name
	port     string
	protocol model.Protocol
	family   model.Family
}

func idOf(f *plan.Frontend) portID { return portID{f.Service, f.Port, f.Protocol, f.Family()} }

func (id portID) hashed(prefix string, more ...string) string {
	parts := append([]string{id.String(), protocolName(id.protocol)}, more...)
	return hashed(prefix, parts...)
}

func (id portID) String() string {
	if id.port == "" {
		return id.service.String()
	}
	return id.service.String() + ":" + id.port
}

// group is all frontends of a service port, which share pools and policies. It
// depends on those frontends and the settings only, and does not change.
type group struct {
	id        portID
	frontends []*plan.Frontend // sorted by kind and key
	pools     []*pool
	policies  []*policy
	entries   []placed
	chains    []chain
}

// placed is an entry with the tree that it is in and its place there.
type placed struct {
	tree treeName
	at   place
	written
}

// chain is one that is no tree's.
type chain struct {
	name  string
	write func(*chainText)
}

// newGroup arranges the frontends of a service port.
func newGroup(id portID, frontends []*plan.Frontend, env *environment) *group {
	g := &group{id: id, frontends: slices.Clone(frontends)}
	slices.SortFunc(g.frontends, func(a, b *plan.Frontend) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Key.Compare(b.Key))
	})
	for _, f := range g.frontends {
		g.addPolicy(f, env)
	}
	g.separate()
	for _, f := range g.frontends {
		g.place(f, env)
	}
	return g
}

// addPolicy notes what a frontend needs.
func (g *group) addPolicy(f *plan.Frontend, env *environment) {
	route := g.pool(f.Route.Endpoints, f, env)
	var outside *pool
	if f.Outside != nil {
		outside = g.pool(f.Outside.Endpoints, f, env)
	}
	same := func(p *policy) bool {
		return p.route == route && p.outside == outside && p.masquerade == f.Masquerade
	}
	i := slices.IndexFunc(g.policies, same)
	if i < 0 {
		i = len(g.policies)
		g.policies = append(g.policies, &policy{route: route, outside: outside, masquerade: f.Masquerade, env: env})
	}
	p := g.policies[i]
	p.frontends = append(p.frontends, f)
	p.filtered = p.filtered || f.Filtered
}

// pool finds the pool with these endpoints.
func (g *group) pool(endpoints []plan.Endpoint, f *plan.Frontend, env *environment) *pool {
	i := slices.IndexFunc(g.pools, func(p *pool) bool {
		return p.affinity == f.Affinity && samePool(p.endpoints, endpoints)
	})
	if i < 0 {
		i = len(g.pools)
		g.pools = append(g.pools, &pool{id: g.id, words: env.words, endpoints: endpoints, affinity: f.Affinity})
	}
	p := g.pools[i]
	if !slices.Contains(p.keys, f.Key) {
		p.keys = append(p.keys, f.Key)
	}
	return p
}

const (
	// chainRules is how many rules there are at most in a chain in which a packet
	// looks for its frontend.
	chainRules = 32
	// shareFrom is from how many rules on it is better to have a chain than to
	// repeat them.
	shareFrom = 12
)

// worthAChain tells whether rules that are used so often should have a chain.
func worthAChain(rules, uses int) bool {
	return rules > chainRules || uses > 1 && rules > 1 && rules*uses > shareFrom
}

// separate gives those pools and policies chains of their own that need one.
func (g *group) separate() {
	for _, p := range g.policies {
		p.count()
	}
	for i, p := range g.pools {
		if worthAChain(p.rules(), p.uses) {
			p.chain = g.id.hashed(poolPrefix, strconv.Itoa(i))
			if !p.big() {
				g.chains = append(g.chains, chain{p.chain, func(to *chainText) {
					to.own(p.keys...)
					to.comment = g.id.String()
					p.write(to, p.base())
				}})
			}
		}
	}
	for i, p := range g.policies {
		if n := p.size(); n > 0 && (p.filtered || worthAChain(n, len(p.frontends))) {
			p.chain = g.id.hashed(policyPrefix, strconv.Itoa(i))
			g.chains = append(g.chains, chain{p.chain, func(to *chainText) {
				to.own(p.keys()...)
				to.comment = g.id.String()
				p.write(to, rule{protocol: protocolName(g.id.protocol)})
			}})
		}
	}
}

// place puts the rules of a frontend into the trees.
func (g *group) place(f *plan.Frontend, env *environment) {
	i := slices.IndexFunc(g.policies, func(p *policy) bool { return slices.Contains(p.frontends, f) })
	p := g.policies[i]
	at, trees := placeOf(f)
	add := func(t treeName, e written) {
		if e.weight() > 0 {
			g.entries = append(g.entries, placed{t, at, e})
		}
	}
	refusal := &refusal{f, env}
	switch {
	case p.size() == 0:
	case !f.Filtered:
		add(trees.nat, &forward{f, p})
	case len(f.Sources) > 0:
		name := g.id.hashed(admitPrefix, f.Key.String())
		add(trees.nat, &admission{f, name})
		g.chains = append(g.chains, chain{name, func(to *chainText) { writeSources(to, f, p.chain) }})
	}
	add(trees.filter, refusal)
	if f.Filtered {
		add(firewallTree, &firewall{f, refusal})
	}
}

// writeSources admits the sources that may connect.
func writeSources(to *chainText, f *plan.Frontend, next string) {
	to.own(f.Key)
	to.comment = commentOf(f)
	for _, s := range f.Sources {
		to.add(rule{source: s, target: leave(next)})
	}
}

// placeOf is where the rules of a frontend go.
func placeOf(f *plan.Frontend) (at place, trees struct{ nat, filter treeName }) {
	switch {
	case f.NodePort():
		trees.nat, trees.filter = nodePortTree, refusedPortTree
		return portPlace(f.Protocol, f.Key.Port), trees
	case f.Kind == plan.ClusterIP:
		trees.nat, trees.filter = serviceTree, refusedServiceTree
	default:
		trees.nat, trees.filter = serviceTree, refusedExternalTree
	}
	return servicePlace(f.Addr, f.Protocol, f.Key.Port), trees
}

// match takes the packets to a frontend.
func match(f *plan.Frontend) rule {
	r := rule{protocol: protocolName(f.Protocol), port: f.Key.Port, last: f.Key.Port}
	if !f.NodePort() {
		r.destination = netip.PrefixFrom(f.Addr, f.Addr.BitLen())
	}
	return r
}

// commentOf says in a rule what a frontend is.
func commentOf(f *plan.Frontend) string {
	kind := [...]string{
		plan.ClusterIP:      " cluster IP",
		plan.LoadBalancerIP: " loadbalancer IP",
		plan.ExternalIP:     " external IP",
		plan.NodePort:       "",
	}[f.Kind]
	return idOf(f).String() + kind
}

func (id portID) compare(o portID) int {
	return cmp.Or(
		cmp.Compare(id.service.Namespace, o.service.Namespace),
		cmp.Compare(id.service.Name, o.service.Name),
		cmp.Compare(id.port, o.port),
		cmp.Compare(id.protocol, o.protocol),
		cmp.Compare(id.family, o.family))
}
