package plan

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// maxWeightedSlots bounds how many slots a pool with weights has, unless it has a
// quarter as many endpoints. Shares are rounded to one slot if need be.
const maxWeightedSlots = 1024

// Weighted reports whether the endpoints have different weights.
func (r *Route) Weighted() bool { return len(r.Endpoints) > 0 && r.Endpoints[0].Weight != 0 }

// Slots returns the endpoints as a list in which each of them is as often as its
// weight asks for: a uniform choice among the slots is a choice by weight. For
// Maglev it is the lookup table. The list depends on the endpoints and their
// weights only, and is the same on every node that has the same pool.
func (r *Route) Slots() []netip.AddrPort {
	if r.Algorithm == model.Maglev {
		return maglevTable(r.Endpoints)
	}
	slots := make([]netip.AddrPort, 0, len(r.Endpoints))
	if !r.Weighted() {
		for _, e := range r.Endpoints {
			slots = append(slots, e.AddrPort)
		}
		return slots
	}
	counts := slotCounts(r.Endpoints)
	if r.Algorithm == model.RoundRobin {
		return interleave(r.Endpoints, counts)
	}
	for i, e := range r.Endpoints {
		for range counts[i] {
			slots = append(slots, e.AddrPort)
		}
	}
	return slots
}

// NumSlots returns how many slots there are.
func (r *Route) NumSlots() int {
	switch {
	case len(r.Endpoints) == 0:
		return 0
	case r.Algorithm == model.Maglev:
		return MaglevSize
	case !r.Weighted():
		return len(r.Endpoints)
	}
	n := 0
	for _, c := range slotCounts(r.Endpoints) {
		n += c
	}
	return n
}

// slotCounts returns how many slots each endpoint gets: as few as express the
// weights exactly, or about as many as allowed.
func slotCounts(endpoints []Endpoint) []int {
	sum, divisor := 0, 0
	for _, e := range endpoints {
		sum += int(e.Weight)
		divisor = gcd(divisor, int(e.Weight))
	}
	most := max(maxWeightedSlots, 4*len(endpoints))
	counts := make([]int, len(endpoints))
	for i, e := range endpoints {
		if sum/divisor <= most {
			counts[i] = int(e.Weight) / divisor
		} else {
			counts[i] = max(1, (int(e.Weight)*most+sum/2)/sum)
		}
	}
	return counts
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// interleave spreads the slots of each endpoint evenly over the list, so that
// round robin does not visit one many times in a row.
func interleave(endpoints []Endpoint, counts []int) []netip.AddrPort {
	type slot struct {
		position float64
		endpoint int
	}
	var all []slot
	for i, n := range counts {
		for k := range n {
			all = append(all, slot{(float64(k) + 0.5) / float64(n), i})
		}
	}
	slices.SortFunc(all, func(a, b slot) int {
		switch {
		case a.position < b.position:
			return -1
		case a.position > b.position:
			return 1
		}
		return a.endpoint - b.endpoint
	})
	slots := make([]netip.AddrPort, len(all))
	for i, s := range all {
		slots[i] = endpoints[s.endpoint].AddrPort
	}
	return slots
}

// ByClient reports whether a client's endpoint depends on nothing but its address.
func (r *Route) ByClient() bool {
	return r.Algorithm == model.SourceHash || r.Algorithm == model.Maglev
}

// Endpoint returns the endpoint that a client gets, if that depends on nothing but
// its address.
func (r *Route) Endpoint(client netip.Addr) (at netip.AddrPort, ok bool) {
	if !r.ByClient() || len(r.Endpoints) == 0 || !client.IsValid() {
		return netip.AddrPort{}, false
	}
	slots := r.Slots()
	return slots[HashClient(client, len(slots))], true
}
