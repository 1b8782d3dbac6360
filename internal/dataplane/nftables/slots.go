//go:build linux

package nftables

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// slotGuess guesses how many endpoints a frontend has in the kernel, in the pool of
// Route or in that of Outside.
type slotGuess struct {
	of func(k plan.Key, outside bool) int
	// pools are those that there may be.
	pools map[plan.Key]struct{}
	// later says that what has more than most elements may be read later. all is how many slots there are.
	later     bool
	most, all int
}

// guessSlots guesses that the kernel holds what is desired.
func guessSlots(desired *plan.Desired) *slotGuess {
	pools, all := map[plan.Key]struct{}{}, 0
	for _, f := range desired.Frontends {
		for _, r := range f.Routes() {
			if pooled(r) {
				pools[poolKeyOf(f, r)] = struct{}{}
			} else {
				all += r.NumSlots()
			}
		}
	}
	return &slotGuess{pools: pools, all: all, of: func(k plan.Key, outside bool) int {
		f := desired.Frontends[k]
		switch {
		case f == nil:
			return 0
		case !outside && ownSlots(&f.Route):
			return f.Route.NumSlots()
		case outside && f.Outside != nil && ownSlots(f.Outside):
			return f.Outside.NumSlots()
		}
		return 0
	}}
}

// maxDump is up to how many elements a set is dumped. The time of a dump grows with
// the square, because for each part of it the kernel starts at the beginning.
const maxDump = 20_000

// readSlots reads a map of endpoints by the keys that it probably has. It returns false, and
// keeps nothing, if that does not find all elements.
func (r *reader) readSlots(ctx context.Context, c *nft.Conn, t nft.Table, set string, count int, guess *slotGuess) (bool, error) {
	of, outside := frontendSets[set], isOutside(set)
	slotsOf := slotsIn(set)
	expected := map[plan.Key]int{}
	if set == pools {
		for k := range guess.pools {
			r.frontend(k)
			expected[k] = plan.MaglevSize
		}
	} else {
		for k := range r.frontends {
			if kindOf(k) == of && !isPool(k) {
				expected[k] = guess.of(k, outside)
			}
		}
	}
	ofSet := slices.Collect(maps.Keys(expected))
	if found, err := r.readPools(ctx, c, t, set, expected, count); err != nil || found == count {
		return err == nil, err
	}
	for _, k := range ofSet { // the others have theirs from other maps
		*slotsOf(r.frontends[k]) = nil
	}
	return false, nil
}

// isOutside reports whether a map has slots of Outside.
func isOutside(set string) bool { return set == mapsOfKind[frontendSets[set]].outsideSlots }

// slotsIn returns which slots of a frontend are in a map.
func slotsIn(set string) func(*programmed) *[]netip.AddrPort {
	if isOutside(set) {
		return func(p *programmed) *[]netip.AddrPort { return &p.outsideSlots }
	}
	return func(p *programmed) *[]netip.AddrPort { return &p.slots }
}

// readPools reads as many slots of each frontend as are expected, and more while there are some, until it has found
// enough. It returns how many it found.
func (r *reader) readPools(ctx context.Context, c *nft.Conn, t nft.Table, set string, expected map[plan.Key]int, enough int) (found int, err error) {
	slotsOf := slotsIn(set)
	for more := 0; len(expected) > 0; more = 8 {
		n, err := r.lookUpSlots(ctx, c, t, set, expected, slotsOf)
		if found += n; err != nil || found == enough {
			return found, err
		}
		// Pools with all that was expected can have more.
		for k, n := range expected {
			switch {
			case len(*slotsOf(r.frontends[k])) < n:
				delete(expected, k)
			case more == 0:
				expected[k] = n + 1
			default:
				expected[k] = n + 1 + n/more
			}
		}
	}
	return found, nil
}

// lookUpSlots reads the slots that were not read yet, up to the given number for each
// pool, and returns how many it found.
func (r *reader) lookUpSlots(ctx context.Context, c *nft.Conn, t nft.Table, set string, expected map[plan.Key]int,
	slotsOf func(*programmed) *[]netip.AddrPort) (found int, err error) {
	var a arena
	var keys []nft.Element
	var owners []plan.Key
	read := func() error {
		err := c.Lookup(ctx, t, set, keys, func(i int, e *nft.Element) error {
			if e == nil {
				return nil
			}
			slots, v := slotsOf(r.frontends[owners[i]]), r.decode(e.Data)
			at := r.decode(e.Key[len(e.Key)-nft.WordLen:]).index()
			if ep := v.target(frontendSets[set]); at == len(*slots) && v.Done() {
				*slots = append(*slots, ep)
				found++
			}
			return nil
		})
		a.reset()
		keys, owners = keys[:0], owners[:0]
		return err
	}
	for k, n := range expected {
		for i := len(*slotsOf(r.frontends[k])); i < n; i++ {
			keys, owners = append(keys, nft.Element{Key: a.slotKey(k, i)}), append(owners, k)
		}
		if len(keys) < lookupChunk {
			continue
		}
		if err := read(); err != nil {
			return found, err
		}
	}
	return found, read()
}
