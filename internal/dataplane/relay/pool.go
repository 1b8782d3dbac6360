package relay

import (
	"container/list"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// MaxAffinityEntries is how many client addresses a Balancer with affinity
// remembers. Beyond that, the least recently used one is evicted.
const MaxAffinityEntries = 10_000

// Balancer is what the pools of a service port have in common: whose turn it is, and
// which client has which endpoint.
type Balancer struct {
	clock clock.PassiveClock
	name  string // for messages

	mu       sync.Mutex // never held across I/O; guards the pools as well
	turn     int        // of round robin
	affinity time.Duration
	clients  map[netip.Addr]*list.Element // of byAge; nil while there are none
	byAge    list.List                    // of affinityEntry, the least recently used one first
	pools    map[*Pool]struct{}
}

type affinityEntry struct {
	client   netip.Addr
	endpoint netip.AddrPort
	since    time.Time // of its last connection
}

// NewBalancer returns a Balancer without pools. The name of its service port is for messages.
func NewBalancer(c clock.PassiveClock, name string) *Balancer {
	return &Balancer{clock: c, name: name, pools: map[*Pool]struct{}{}}
}

// Pool chooses endpoints of a route, and knows the connections that use it. Pools are
// used by one goroutine that changes them and many that connect.
type Pool struct {
	*Balancer
	route  plan.Route
	slots  []netip.AddrPort // of route
	serves func(netip.AddrPort) bool
	users  map[user]netip.AddrPort
}

// user is a connection of a client with an endpoint.
type user interface {
	// lost says that the endpoint no longer serves, and whether new connections would
	// get no answer.
	lost(silence bool)
}

// NewPool returns a pool without endpoints.
func (b *Balancer) NewPool() *Pool {
	return &Pool{Balancer: b, serves: func(netip.AddrPort) bool { return false }}
}

// Set replaces the route, the function that reports whether an endpoint keeps its
// connections, and the affinity timeout, 0 for none. Removed endpoints are no longer
// chosen from now on.
func (p *Pool) Set(route plan.Route, serves func(netip.AddrPort) bool, affinity time.Duration) {
	p.mu.Lock()
	p.pools[p] = struct{}{}
	p.route, p.slots, p.serves, p.affinity = route, route.Slots(), serves, affinity
	p.forgetClients()
	lost := p.lostUsers()
	p.mu.Unlock()
	for _, u := range lost {
		u.lost(route.Verdict() == plan.Drop)
	}
}

// Remove makes the pool choose and serve nothing. Its TCP connections go on: the
// endpoints may be there still. The Balancer goes on with its other pools.
func (p *Pool) Remove() {
	p.mu.Lock()
	delete(p.pools, p)
	p.route, p.slots, p.serves = plan.Route{}, nil, func(netip.AddrPort) bool { return false }
	p.forgetClients()
	lost := p.lostUsers()
	p.mu.Unlock()
	for _, u := range lost {
		u.lost(true)
	}
}

// forgetClients forgets those whose endpoint left all pools.
func (b *Balancer) forgetClients() {
	for _, element := range b.clients {
		entry := element.Value.(affinityEntry)
		kept := false
		for p := range b.pools {
			kept = kept || p.route.Contains(entry.endpoint)
		}
		if b.affinity == 0 || !kept {
			b.forget(element)
		}
	}
}

func (b *Balancer) forget(element *list.Element) {
	delete(b.clients, b.byAge.Remove(element).(affinityEntry).client)
}

// endpointOf returns the endpoint that a client has affinity to, and for how long.
func (b *Balancer) endpointOf(client netip.Addr) (endpoint netip.AddrPort, expires time.Duration, ok bool) {
	element, ok := b.clients[client]
	if !ok {
		return netip.AddrPort{}, 0, false
	}
	entry := element.Value.(affinityEntry)
	expires = b.affinity - b.clock.Since(entry.since)
	return entry.endpoint, expires, expires > 0
}

func (p *Pool) lostUsers() (lost []user) {
	for u, endpoint := range p.users {
		if !p.serves(endpoint) {
			lost = append(lost, u)
		}
	}
	return lost
}

// begin adds a user of an endpoint, and reports whether that serves.
func (p *Pool) begin(u user, endpoint netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users == nil {
		p.users = map[user]netip.AddrPort{}
	}
	p.users[u] = endpoint
	return p.serves(endpoint)
}

func (p *Pool) end(u user) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.users, u)
}

// Connections returns how many connections each endpoint has through the pool.
func (p *Pool) Connections() map[netip.AddrPort]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := map[netip.AddrPort]int{}
	for _, endpoint := range p.users {
		count[endpoint]++
	}
	return count
}

// Remembered returns the endpoint that a client has affinity to, and when that expires.
func (b *Balancer) Remembered(client netip.Addr) (endpoint netip.AddrPort, expires time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.endpointOf(client)
}

// candidates returns endpoints to try for a client, in this order.
func (p *Pool) candidates(client netip.Addr) []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := len(p.slots)
	if count == 0 {
		return nil
	}
	out := make([]netip.AddrPort, 0, min(count, plan.ProxyTries))
	if endpoint, _, ok := p.endpointOf(client); ok && p.route.Contains(endpoint) {
		out = append(out, endpoint)
	}
	first := p.choose(client)
	for i := 0; i < count && len(out) < plan.ProxyTries; i++ {
		if e := p.slots[(first+i)%count]; !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

func (p *Pool) choose(client netip.Addr) int {
	switch p.route.Algorithm {
	case model.RoundRobin:
		p.turn++
		return p.turn % len(p.slots)
	case model.SourceHash, model.Maglev:
		return plan.HashClient(client, len(p.slots))
	}
	return rand.IntN(len(p.slots))
}

// local reports whether an endpoint runs on this node.
func (p *Pool) local(endpoint netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, found := p.route.Find(endpoint)
	return found && e.Local
}

// silent reports whether new connections get no answer.
func (p *Pool) silent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.route.Verdict() == plan.Drop
}

func (p *Pool) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.slots) == 0
}

// chose records that a client has a connection to an endpoint, and reports
// whether that is still in the pool.
func (p *Pool) chose(client netip.Addr, endpoint netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.route.Contains(endpoint) {
		return false
	}
	if p.affinity == 0 {
		return true
	}
	p.remember(affinityEntry{client, endpoint, p.clock.Now()})
	return true
}

func (b *Balancer) remember(entry affinityEntry) {
	if element, known := b.clients[entry.client]; known {
		element.Value = entry
		b.byAge.MoveToBack(element)
		return
	}
	if len(b.clients) >= MaxAffinityEntries {
		b.forget(b.byAge.Front())
	}
	if b.clients == nil {
		b.clients = map[netip.Addr]*list.Element{}
	}
	b.clients[entry.client] = b.byAge.PushBack(entry)
}

func (p *Pool) refused(client netip.Addr, endpoint netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if element, known := p.clients[client]; known && element.Value.(affinityEntry).endpoint == endpoint {
		p.forget(element)
	}
}
