//go:build linux

package ipvs

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane/ipvs/leftover"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// server is a virtual service of ours.
type server struct {
	// Service is what the kernel holds; without a scheduler if it holds nothing.
	ipvs.Service
	// destinations are those in the kernel, sorted.
	destinations []ipvs.Destination
	// frontend is what the service is for; nil if that is gone.
	frontend *plan.Frontend
	// late says that new destinations wait for the table.
	late bool
}

// keyFor returns the key of the virtual service for a frontend at an address.
func keyFor(k plan.Key, at netip.Addr) ipvs.Key {
	return ipvs.Key{Addr: at, Port: k.Port, Protocol: uint8(k.Protocol)}
}

// scheduled reports whether IPVS serves a frontend. Clients from outside, if they have a route of
// their own, are served by the table.
func scheduled(f *plan.Frontend) bool { return f.Route.Delegated() && len(f.Route.Endpoints) > 0 }

// schedulerFor returns the scheduler that chooses endpoints of a route.
func schedulerFor(r *plan.Route) string {
	scheduler := r.Balancer.Default
	switch r.Algorithm {
	case model.RoundRobin:
		scheduler = "rr"
	case model.LeastConnections:
		scheduler = "lc"
	}
	if weighted, ok := weightedSchedulers[scheduler]; ok && r.Weighted() {
		return weighted
	}
	return scheduler
}

// weightedSchedulers are counterparts of schedulers that ignore weights.
var weightedSchedulers = map[string]string{"rr": "wrr", "lc": "wlc"}

// flagsFor returns the flags of services with a scheduler. Clients whose destination has
// weight 0 must get another one. The port is hashed as upstream does it.
func flagsFor(scheduler string) ipvs.Flags {
	switch scheduler {
	case "sh":
		return ipvs.Fallback
	case "mh":
		return ipvs.Fallback | ipvs.HashPort
	}
	return 0
}

func (s *server) wanted() ipvs.Service {
	scheduler := schedulerFor(&s.frontend.Route)
	return ipvs.Service{Key: s.Key, Scheduler: scheduler, Flags: flagsFor(scheduler), Timeout: leftover.OwnerTimeout}
}

func (s *server) serves() bool { return s.frontend != nil && scheduled(s.frontend) }

// pool returns the destinations that get new connections.
func (s *server) pool() []ipvs.Destination {
	if !s.serves() {
		return nil
	}
	pool := make([]ipvs.Destination, len(s.frontend.Route.Endpoints))
	for i, e := range s.frontend.Route.Endpoints {
		pool[i] = ipvs.Destination{AddrPort: e.AddrPort, Weight: max(1, uint32(e.Weight))}
	}
	if schedulerFor(&s.frontend.Route) == "wrr" {
		limitWeights(pool)
	}
	return pool
}

// maxRoundRobinWeight bounds the weights of scheduler wrr. It gives the destination with
// the greatest weight as many connections in a row as its weight exceeds the others', so
// that weights of many thousands would be no balance at all.
const maxRoundRobinWeight = 64

func limitWeights(pool []ipvs.Destination) {
	most := uint32(0)
	for _, d := range pool {
		most = max(most, d.Weight)
	}
	if most <= maxRoundRobinWeight {
		return
	}
	divisor := uint32(0)
	for _, d := range pool {
		for a, b := divisor, d.Weight; ; a, b = b, a%b {
			if divisor = a; b == 0 {
				break
			}
		}
	}
	for i := range pool {
		if w := &pool[i].Weight; most/divisor <= maxRoundRobinWeight {
			*w /= divisor
		} else {
			*w = max(1, (*w*maxRoundRobinWeight+most/2)/most)
		}
	}
}

func compareDestinations(a, b ipvs.Destination) int { return a.AddrPort.Compare(b.AddrPort) }

// raise adds the destinations that are missing, and sets the weights of others.
func (s *server) raise(b *ipvs.Batch) {
	var now []ipvs.Destination
	changed := false
	for have, want := range plan.Merge(s.destinations, s.pool(), compareDestinations) {
		switch {
		case want == nil:
			now = append(now, *have)
			continue
		case have == nil:
			b.AddDestination(s.Key, *want)
			changed = true
		case have.Weight != want.Weight:
			b.SetDestination(s.Key, *want)
			changed = true
		}
		now = append(now, *want)
	}
	if changed {
		s.destinations = now
	}
}

// lower takes new connections from destinations that are not in the pool. Those that
// keep their connections stay with weight 0, the others are deleted. It reports whether
// some of them stay.
func (s *server) lower(b *ipvs.Batch) (draining bool) {
	var now []ipvs.Destination
	changed := false
	for have, want := range plan.Merge(s.destinations, s.pool(), compareDestinations) {
		switch {
		case want != nil && have == nil: // it was refused
			continue
		case want != nil:
		case !s.keepsFlows(have.AddrPort):
			b.DeleteDestination(s.Key, have.AddrPort)
			changed = true
			continue
		case have.Weight != 0:
			have.Weight = 0
			b.SetDestination(s.Key, *have)
			draining = true
		default:
			draining = true
		}
		now = append(now, *have)
	}
	if changed {
		s.destinations = now
	}
	return draining
}

// keepsFlows reports whether a destination that is not in the pool keeps its flows. Those
// of UDP have no end: they must find another endpoint unless theirs still serves.
func (s *server) keepsFlows(at netip.AddrPort) bool {
	return s.Protocol != unix.IPPROTO_UDP || s.frontend != nil && s.frontend.Serves(at)
}

// drained removes destinations that have no connections left from the mirror, given what
// the kernel holds, and reports whether some are left that drain.
func (s *server) drained(b *ipvs.Batch, now []ipvs.Destination) (draining bool) {
	pool := s.pool()
	inPool := func(at netip.AddrPort) bool {
		_, found := slices.BinarySearchFunc(pool, ipvs.Destination{AddrPort: at}, compareDestinations)
		return found
	}
	connections := map[netip.AddrPort]int{}
	for i := range now {
		connections[now[i].AddrPort] = now[i].Connections()
	}
	s.destinations = slices.DeleteFunc(s.destinations, func(d ipvs.Destination) bool {
		if inPool(d.AddrPort) {
			return false
		}
		if connections[d.AddrPort] > 0 {
			draining = true
			return false
		}
		if _, there := connections[d.AddrPort]; there {
			b.DeleteDestination(s.Key, d.AddrPort)
		}
		return true
	})
	return draining
}
