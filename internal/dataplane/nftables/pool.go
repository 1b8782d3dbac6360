//go:build linux

package nftables

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// The slots of a pool that is large whatever its endpoints are, which is the lookup table of
// Maglev, are in the kernel once, and not for each frontend. In the mirror such a pool is a
// frontend that no packet is addressed to. It has slots and no verdict, and its key is a
// number instead of an address.

// pooled reports whether the slots of a route are those of a pool.
func pooled(r *plan.Route) bool {
	return r.Algorithm == model.Maglev && len(r.Endpoints) > 0 && !r.Delegated()
}

// poolOf is the number of the pool that frontends of a service port share.
func poolOf(f *plan.Frontend, r *plan.Route) affinityID {
	name := f.Service.String() + ":" + f.Port + "/" + f.Protocol.String()
	if r.Local {
		name += " local"
	}
	return hashID(name)
}

// poolKey is the key of a pool in the mirror. There is no protocol 0.
func poolKey(id affinityID) plan.Key {
	var number [16]byte
	binary.BigEndian.PutUint64(number[8:], uint64(id))
	return plan.Key{Addr: netip.AddrFrom16(number)}
}

func isPool(k plan.Key) bool { return k.Protocol == 0 }

// poolID is the number of the pool with a key.
func poolID(k plan.Key) affinityID {
	number := k.Addr.As16()
	return affinityID(binary.BigEndian.Uint64(number[8:]))
}

// poolKeyOf is the pool of a route of a frontend.
func poolKeyOf(f *plan.Frontend, r *plan.Route) plan.Key { return poolKey(poolOf(f, r)) }

// pools yields the pools of frontends, each once, as frontends.
func (t *table) pools(frontends iter.Seq[*plan.Frontend]) iter.Seq[*plan.Frontend] {
	return func(yield func(*plan.Frontend) bool) {
		seen := map[plan.Key]struct{}{}
		for f := range frontends {
			for _, r := range f.Routes() {
				if !pooled(r) {
					continue
				}
				k := poolKeyOf(f, r)
				if _, again := seen[k]; again {
					continue
				}
				seen[k] = struct{}{}
				pool := &plan.Frontend{Key: k, Route: plan.Route{Endpoints: r.Endpoints, Algorithm: r.Algorithm}}
				if !yield(pool) {
					return
				}
			}
		}
	}
}

// poolItem returns the item that changes a pool, nil if it need not be changed.
func (t *table) poolItem(f *plan.Frontend, old *frontend, now *programmed) *item {
	if old != nil && !old.begun && slices.Equal(old.Route.Endpoints, f.Route.Endpoints) {
		return nil
	}
	it := &item{table: t, key: f.Key, now: now, old: old, new: t.compile(f, now, nil)}
	if now != nil && now.same(&it.new.programmed) {
		t.frontends[f.Key] = it.new
		return nil
	}
	return it
}

// poolPart is how many slots of a pool are changed at a time. All of them are written before the
// frontends that use a new pool, and between two parts a client gets the endpoint that it had, or
// the one that it will have.
const poolPart = 250

// cut reduces what an item of a pool changes to so many slots.
func (it *item) cut(most int) {
	var slots []netip.AddrPort
	if it.now != nil {
		slots = slices.Clone(it.now.slots)
	}
	want := it.new.slots
	for i, n := 0, 0; i < len(want); i++ {
		if i < len(slots) && slots[i] == want[i] {
			continue
		}
		if n++; n > most {
			it.new = &frontend{Frontend: it.new.Frontend, programmed: programmed{slots: slots}, begun: true}
			return
		}
		if i < len(slots) {
			slots[i] = want[i]
		} else {
			slots = append(slots, want[i])
		}
	}
}

// waitsFor returns a pool that a frontend has to wait for, because it is not complete; nil for none.
func (t *table) waitsFor(f *plan.Frontend) *item {
	for _, r := range f.Routes() {
		if pooled(r) && t.begun[poolKeyOf(f, r)] != nil {
			return t.begun[poolKeyOf(f, r)]
		}
	}
	return nil
}

// waitsNoMore records that a frontend does not wait for a pool, which may be without any then.
func (t *table) waitsNoMore(k plan.Key) {
	if pool, waited := t.left[k]; waited {
		delete(t.left, k)
		t.unused = append(t.unused, pool)
	}
}

// usePools counts the frontends that use each pool.
func (t *table) usePools(f *frontend, n int) {
	if f == nil || isPool(f.Key) {
		return
	}
	for _, r := range f.Routes() {
		if !pooled(r) {
			continue
		}
		k := poolKeyOf(f.Frontend, r)
		if t.users[k] += n; t.users[k] == 0 {
			delete(t.users, k)
			t.unused = append(t.unused, k)
		}
	}
}

// unusedPools returns items that remove pools of which no frontend is left.
func (t *table) unusedPools() (items []*item) {
	wanted := map[plan.Key]struct{}{}
	for _, k := range t.left {
		wanted[k] = struct{}{}
	}
	for _, k := range t.unused {
		_, waits := wanted[k]
		if old := t.frontends[k]; old != nil && t.users[k] == 0 && !waits {
			wanted[k] = struct{}{} // once
			items = append(items, &item{table: t, key: k, now: &old.programmed, old: old})
		}
	}
	t.unused = nil
	return items
}

// keepPools keeps pools that were to be removed and are used after all.
func (c *commit) keepPools(t *table) {
	for _, it := range c.items {
		if it.table == t && isPool(it.key) && it.new == nil && t.users[it.key] > 0 {
			it.new = it.old
		}
	}
}

// failPool records that the kernel refused a pool, and with it the frontends that need it.
func (c *commit) failPool(pool *item, err error) {
	fail := func(k plan.Key) {
		c.result.Failed[k] = fmt.Errorf("the kernel refused the endpoints of %s: %w", k, err)
		delete(c.result.Left, k)
	}
	for _, k := range pool.waiting {
		fail(k)
	}
	for _, it := range c.items {
		if it.table != pool.table || it.new == nil || isPool(it.key) {
			continue
		}
		for _, r := range it.new.Routes() {
			if pooled(r) && poolKeyOf(it.new.Frontend, r) == pool.key {
				fail(it.key)
			}
		}
	}
}

func (d *decoder) pool() plan.Key { return poolKey(decodeAffinityID(&d.Decoder)) }

// poolSlot is the key of a slot for rules.
func poolSlot(id affinityID, slot nft.Value) nft.Concat { return append(id.values(), slot) }
