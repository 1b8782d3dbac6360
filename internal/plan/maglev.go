package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"net/netip"
)

const (
	// MaglevSize is the size of the lookup table. It is a prime, and can never be
	// another one: nodes with different sizes would send clients to different
	// endpoints.
	MaglevSize = 4093
	// MaxMaglevEndpoints bounds the pool: with more, some endpoints would get
	// much more than others.
	MaxMaglevEndpoints = 1000
)

// maglevTable returns the lookup table of the endpoints of a pool.
func maglevTable(endpoints []Endpoint) []netip.AddrPort {
	if len(endpoints) == 0 {
		return nil
	}
	keys, weights := make([][sha256.Size]byte, len(endpoints)), make([]int, len(endpoints))
	for i, e := range endpoints {
		key, _ := e.AddrPort.MarshalBinary() // never fails
		keys[i], weights[i] = sha256.Sum256(key), int(e.Weight)
	}
	table := maglev(MaglevSize, keys, weights)
	slots := make([]netip.AddrPort, len(table))
	for i, of := range table {
		slots[i] = endpoints[of].AddrPort
	}
	return slots
}

// maglev returns the lookup table of Maglev's consistent hashing: which of those with the keys has each slot,
// whose number is a prime. They take turns to fill in a free slot, each by an order of its own; one with half
// the weight takes every second turn. When one of them leaves, nearly all other slots stay what they are.
func maglev(size int, keys [][sha256.Size]byte, weights []int) []uint16 {
	orders := make([]maglevOrder, len(keys))
	most := 1
	for i, w := range weights {
		orders[i] = newMaglevOrder(size, keys[i], w)
		most = max(most, orders[i].weight)
	}
	for i := range orders {
		orders[i].credit = most // all take the first turn
	}
	const free = math.MaxUint16
	slots, left := make([]uint16, size), size
	for i := range slots {
		slots[i] = free
	}
	for {
		for i := range orders {
			o := &orders[i]
			if o.credit < most {
				o.credit += o.weight
			}
			if o.credit < most {
				continue
			}
			o.credit -= most
			for slots[o.at] != free {
				o.at = (o.at + o.skip) % size
			}
			slots[o.at] = uint16(i)
			if left--; left == 0 {
				return slots
			}
		}
	}
}

// maglevOrder is the order in which one of them fills in slots.
type maglevOrder struct {
	at, skip       int
	weight, credit int
}

func newMaglevOrder(size int, key [sha256.Size]byte, weight int) maglevOrder {
	return maglevOrder{
		at:     int(binary.BigEndian.Uint64(key[0:]) % uint64(size)),
		skip:   int(binary.BigEndian.Uint64(key[8:])%uint64(size-1)) + 1,
		weight: max(1, weight),
	}
}
