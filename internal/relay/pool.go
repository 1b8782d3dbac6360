package relay

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// MaxAffinityEntries is how many client addresses a Relay with affinity
// remembers. Beyond that, the least recently used one is evicted.
const MaxAffinityEntries = 10_000

// pool chooses endpoints.
type pool struct {
	clock clock.PassiveClock

	mu       sync.Mutex // never held across I/O
	route    plan.Route
	slots    []netip.AddrPort // of route
	turn     int              // of round robin
	serves   func(netip.AddrPort) bool
	affinity time.Duration // 0 for none
	clients  map[netip.Addr]affinityEntry
}

// affinityEntry is the endpoint of a client.
type affinityEntry struct {
	endpoint netip.AddrPort
	since    time.Time // of its last connection
}

func newPool(c clock.PassiveClock) pool {
	return pool{clock: c, clients: map[netip.Addr]affinityEntry{}}
}

// set replaces the route, and the function that reports whether an endpoint
// keeps its connections. Removed endpoints are no longer chosen from now on.
func (p *pool) set(route plan.Route, serves func(netip.AddrPort) bool, affinity time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.route, p.slots, p.serves, p.affinity = route, route.Slots(), serves, affinity
	for client, l := range p.clients {
		if affinity == 0 || !route.Contains(l.endpoint) {
			delete(p.clients, client)
		}
	}
}

// candidates returns endpoints to try for a client, in this order.
func (p *pool) candidates(client netip.Addr) []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []netip.AddrPort
	if l, ok := p.clients[client]; ok && p.clock.Since(l.since) < p.affinity {
		out = append(out, l.endpoint)
	}
	count := len(p.slots)
	if count == 0 {
		return nil
	}
	first := p.choose(client)
	for i := 0; i < count && len(out) < maxTries; i++ {
		if e := p.slots[(first+i)%count]; !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// choose returns the slot of a client that has no affinity.
func (p *pool) choose(client netip.Addr) int {
	switch p.route.Algorithm {
	case model.RoundRobin:
		p.turn++
		return p.turn % len(p.slots)
	case model.SourceHash, model.Maglev:
		return plan.HashClient(client, len(p.slots))
	}
	return rand.IntN(len(p.slots))
}

func (p *pool) keeps(endpoint netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serves(endpoint)
}

func (p *pool) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.slots) == 0
}

// chose records that a client has a connection to an endpoint, and reports
// whether that is still in the pool.
func (p *pool) chose(client netip.Addr, endpoint netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.route.Contains(endpoint) {
		return false
	}
	if p.affinity == 0 {
		return true
	}
	if _, known := p.clients[client]; !known && len(p.clients) >= MaxAffinityEntries {
		p.evictOldest()
	}
	p.clients[client] = affinityEntry{endpoint, p.clock.Now()}
	return true
}

// refused records that an endpoint refused a client.
func (p *pool) refused(client netip.Addr, endpoint netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients[client].endpoint == endpoint {
		delete(p.clients, client)
	}
}

func (p *pool) evictOldest() {
	var oldest netip.Addr
	for client, l := range p.clients {
		if !oldest.IsValid() || l.since.Before(p.clients[oldest].since) {
			oldest = client
		}
	}
	delete(p.clients, oldest)
}
