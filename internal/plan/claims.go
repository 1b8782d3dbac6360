package plan

import (
	"slices"
	"time"

	"sluice/internal/model"
)

// claims decides between Services that want the same thing: an address and
// port, or a health check port. The older Service has it, and the first by name
// among equally old ones; whose claim was made first does not matter.
type claims[K comparable, V any] map[K][]claim[V]

// claim is what one Service wants to do with the thing.
type claim[V any] struct {
	*claimant
	value V
}

// claimant is a Service, as far as precedence goes.
type claimant struct {
	name    model.Name
	created time.Time // the zero time is older than any other
}

func (c *claimant) compare(o *claimant) int {
	if d := c.created.Compare(o.created); d != 0 {
		return d
	}
	return c.name.Compare(o.name)
}

func (cs claims[K, V]) find(key K, by *claimant) (int, bool) {
	return slices.BinarySearchFunc(cs[key], by, func(c claim[V], by *claimant) int { return c.compare(by) })
}

// set makes a claim, or replaces the value of the one that was made.
func (cs claims[K, V]) set(key K, by *claimant, value V) {
	i, found := cs.find(key, by)
	if found {
		cs[key][i].value = value
		return
	}
	cs[key] = slices.Insert(cs[key], i, claim[V]{by, value})
}

// release takes a claim back.
func (cs claims[K, V]) release(key K, by *claimant) {
	i, found := cs.find(key, by)
	switch {
	case !found:
	case len(cs[key]) == 1:
		delete(cs, key)
	default:
		cs[key] = slices.Delete(cs[key], i, i+1)
	}
}

// holder returns the claim that has precedence.
func (cs claims[K, V]) holder(key K) (claim[V], bool) {
	all := cs[key]
	if len(all) == 0 {
		return claim[V]{}, false
	}
	return all[0], true
}
