package plan

import (
	"cmp"
	"slices"

	"sluice/internal/model"
)

// claims decides between Services that want the same thing: an address and
// port, or a health check port. The claim of the lowest rank wins, among equals
// that of the oldest Service, and among equally old ones that of the first by
// name; the order in which claims were made does not matter.
type claims[K comparable, V ranked] map[K][]claim[V]

// ranked is what Services can claim.
type ranked interface {
	// rank is low for what nobody may take away by being older.
	rank() int
}

// rank lets nobody capture a ClusterIP that the cluster will give to another
// Service: its users trust that address, and anybody can write any external IP.
func (f *Frontend) rank() int { return int(f.Kind) }

func (HealthCheck) rank() int { return 0 }

// claim is what one Service wants to do with the thing.
type claim[V ranked] struct {
	*claimant
	value V
}

// compare orders by precedence.
func (c claim[V]) compare(o claim[V]) int {
	return cmp.Or(cmp.Compare(c.value.rank(), o.value.rank()), c.claimant.compare(o.claimant))
}

// claimant is a Service that was planned.
type claimant struct {
	object *model.Service // as it was planned last
	plan   servicePlan    // empty when the Service is gone
	// reports are those published for the Service.
	reports []report
	// touched is the number of the last update that touched it.
	touched uint64
}

func (c *claimant) name() model.Name { return c.object.Name }

// compare orders by precedence. A Service without a creation time counts as the
// oldest.
func (c *claimant) compare(o *claimant) int {
	if d := c.object.Created.Compare(o.object.Created); d != 0 {
		return d
	}
	return c.name().Compare(o.name())
}

// set adds a claim, or replaces that of the same Service.
func (cs claims[K, V]) set(key K, by *claimant, value V) {
	cs.release(key, by)
	new := claim[V]{by, value}
	at, _ := slices.BinarySearchFunc(cs[key], new, func(a, b claim[V]) int {
		return a.compare(b)
	})
	cs[key] = slices.Insert(cs[key], at, new)
}

// release withdraws a claim.
func (cs claims[K, V]) release(key K, by *claimant) {
	left := slices.DeleteFunc(cs[key], func(c claim[V]) bool { return c.claimant == by })
	if len(left) == 0 {
		delete(cs, key)
	} else {
		cs[key] = left
	}
}

// holder returns the claim with precedence. There is one.
func (cs claims[K, V]) holder(key K) claim[V] { return cs[key][0] }
