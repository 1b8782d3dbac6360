//go:build linux

package iptables

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// group is all frontends of a service port, which share pools and routings. It
// depends on those frontends and the settings only, and is immutable.
type group struct {
	id        portID
	frontends []*plan.Frontend // sorted by kind and key
	pools     []*pool
	routings  []*routing
	entries   []treeEntry
	// chains write the chains of table nat that are in no dispatch tree, firewalls those of
	// table filter.
	chains, firewalls []func(chainTexts)
}

func (g *group) chainsIn(table string) []func(chainTexts) {
	if table == filter {
		return g.firewalls
	}
	return g.chains
}

// treeEntry is an entry of a dispatch tree.
type treeEntry struct {
	tree treeName
	key  treeKey
	writer
}

func newGroup(id portID, frontends []*plan.Frontend, env *environment) *group {
	g := &group{id: id, frontends: slices.Clone(frontends)}
	slices.SortFunc(g.frontends, func(a, b *plan.Frontend) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Key.Compare(b.Key))
	})
	var routings []*routing
	for _, f := range g.frontends {
		routings = append(routings, g.routing(f, env))
	}
	g.makeChains()
	for i, f := range g.frontends {
		g.addEntries(f, routings[i], env)
	}
	return g
}

func (g *group) routing(f *plan.Frontend, env *environment) *routing {
	route := g.pool(f.Route.Endpoints, f, env)
	var outside *pool
	if f.Outside != nil {
		outside = g.pool(f.Outside.Endpoints, f, env)
	}
	i := slices.IndexFunc(g.routings, func(rt *routing) bool {
		return rt.route == route && rt.outside == outside && rt.masquerade == f.Masquerade
	})
	if i < 0 {
		i = len(g.routings)
		g.routings = append(g.routings, &routing{route: route, outside: outside, masquerade: f.Masquerade, env: env})
	}
	rt := g.routings[i]
	rt.keys = append(rt.keys, f.Key)
	rt.filtered = rt.filtered || f.Filtered
	return rt
}

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
	// chainRules is the maximum number of rules of a chain in which a packet looks
	// for its frontend.
	chainRules = 32
	// shareFrom is the number of rules from which on a chain of their own is better
	// than repeating them.
	shareFrom = 12
)

// worthAChain reports whether rules that are used so often should have a chain.
func worthAChain(rules, uses int) bool {
	return rules > chainRules || uses > 1 && rules > 1 && rules*uses > shareFrom
}

// makeChains gives chains of their own to the pools and routings that need one.
func (g *group) makeChains() {
	for _, rt := range g.routings {
		rt.countUses()
	}
	for i, p := range g.pools {
		if worthAChain(p.rules(), p.uses) {
			p.chain = g.id.hashed(poolPrefix, strconv.Itoa(i))
			g.chains = append(g.chains, p.writeChains)
		}
	}
	for i, rt := range g.routings {
		if n := rt.size(); n > 0 && (rt.filtered || worthAChain(n, len(rt.keys))) {
			rt.chain = g.id.hashed(routePrefix, strconv.Itoa(i))
			g.chains = append(g.chains, func(out chainTexts) {
				text := out.begin(rt.chain)
				text.own, text.comment = rt.keys, g.id.String()
				rt.write(text, rule{protocol: protocolName(g.id.protocol)})
			})
		}
	}
}

func (g *group) addEntries(f *plan.Frontend, rt *routing, env *environment) {
	key, natTree, filterTree := treesOf(f)
	add := func(tree treeName, w writer) {
		if w.weight() > 0 {
			g.entries = append(g.entries, treeEntry{tree, key, w})
		}
	}
	refusal := &refusal{f, env}
	switch {
	case rt.size() == 0:
	case !f.Filtered:
		add(natTree, &forward{f, rt, rt.chain})
	case len(f.Sources) > 0:
		admit := g.id.hashed(admitPrefix, f.Key.String())
		add(natTree, &forward{f, rt, admit})
		g.chains = append(g.chains, func(out chainTexts) {
			text := out.begin(admit)
			text.own, text.comment = []plan.Key{f.Key}, commentOf(f)
			for _, s := range f.Sources {
				text.add(rule{source: s, target: leave(rt.chain)})
			}
		})
	}
	switch {
	case f.Filtered && f.NodePort():
		fw := &portFirewall{refusal, g.id.hashed(firewallPortPrefix, f.Key.String())}
		add(filterTree, fw)
		g.firewalls = append(g.firewalls, fw.writeChain)
	case f.Filtered:
		add(filterTree, refusal)
		add(firewallTree, &firewall{f, refusal})
	default:
		add(filterTree, refusal)
	}
}

// treesOf are the trees that the rules of a frontend are in, and their key there.
func treesOf(f *plan.Frontend) (key treeKey, natTree, filterTree treeName) {
	switch {
	case f.NodePort():
		return portKey(f.Protocol, f.Key.Port), nodePortTree, refusedPortTree
	case f.Kind == plan.ClusterIP:
		return serviceKey(f.Addr, f.Protocol, f.Key.Port), serviceTree, refusedServiceTree
	}
	return serviceKey(f.Addr, f.Protocol, f.Key.Port), serviceTree, refusedExternalTree
}

// portID identifies a port of a Service in one family.
type portID struct {
	service  model.Name
	port     string
	protocol model.Protocol
	family   model.Family
}

func idOf(f *plan.Frontend) portID { return portID{f.Service, f.Port, f.Protocol, f.Family()} }

// hashed is the name of a chain or list of the service port.
func (id portID) hashed(prefix string, more ...string) string {
	parts := append([]string{id.String(), protocolName(id.protocol)}, more...)
	return hashed(prefix, parts...)
}

// clients is the name of the list of clients that have an endpoint. The kernel keeps
// it while there is a rule with the name.
func (id portID) clients(e netip.AddrPort) string { return id.hashed(endpointPrefix, e.String()) }

func (id portID) String() string {
	if id.port == "" {
		return id.service.String()
	}
	return id.service.String() + ":" + id.port
}

func (id portID) compare(o portID) int {
	return cmp.Or(
		cmp.Compare(id.service.Namespace, o.service.Namespace),
		cmp.Compare(id.service.Name, o.service.Name),
		cmp.Compare(id.port, o.port),
		cmp.Compare(id.protocol, o.protocol),
		cmp.Compare(id.family, o.family))
}

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
