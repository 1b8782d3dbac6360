package plan

import (
	"slices"

	"sluice/internal/model"
)

// claims decides between Services that want the same thing: an address and
// port, or a health check port. The oldest Service wins, and among equally old
// ones the first by name; the order in which claims were made does not matter.
type claims[K comparable, V any] map[K][]claim[V]

// claim is what one Service wants to do with the thing.
type claim[V any] struct {
	*claimant
	value V
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

func find[V any](all []claim[V], by *claimant) (int, bool) {
	return slices.BinarySearchFunc(all, by, func(c claim[V], by *claimant) int { return c.compare(by) })
}

// set adds a claim, or replaces the value of an existing one.
func (cs claims[K, V]) set(key K, by *claimant, value V) {
	all := cs[key]
	i, found := find(all, by)
	if found {
		all[i].value = value
		return
	}
	cs[key] = slices.Insert(all, i, claim[V]{by, value})
}

// release withdraws a claim.
func (cs claims[K, V]) release(key K, by *claimant) {
	all := cs[key]
	i, found := find(all, by)
	switch {
	case !found:
	case len(all) == 1:
		delete(cs, key)
	default:
		cs[key] = slices.Delete(all, i, i+1)
	}
}

// holder returns the claimant with precedence, nil if there is none.
func (cs claims[K, V]) holder(key K) *claimant {
	if all := cs[key]; len(all) > 0 {
		return all[0].claimant
	}
	return nil
}
