package plan

import (
	"crypto/sha256"
	"encoding/binary"
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

// maglevTable returns the lookup table of Maglev's consistent hashing. Endpoints
// take turns to fill in a free slot, each by an order of its own; one with half
// the weight takes every second turn. When an endpoint leaves, nearly all
// other slots stay what they are.
func maglevTable(endpoints []Endpoint) []netip.AddrPort {
	if len(endpoints) == 0 {
		return nil
	}
	orders := make([]maglevOrder, len(endpoints))
	most := 1
	for i, e := range endpoints {
		orders[i] = newMaglevOrder(e)
		most = max(most, orders[i].weight)
	}
	for i := range orders {
		orders[i].credit = most // all take the first turn
	}
	slots, free := make([]netip.AddrPort, MaglevSize), MaglevSize
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
			for slots[o.at].IsValid() {
				o.next()
			}
			slots[o.at] = endpoints[i].AddrPort
			if free--; free == 0 {
				return slots
			}
		}
	}
}

// maglevOrder is the order in which an endpoint fills in slots.
type maglevOrder struct {
	at, skip       int
	weight, credit int
}

func newMaglevOrder(e Endpoint) maglevOrder {
	key, _ := e.AddrPort.MarshalBinary() // never fails
	sum := sha256.Sum256(key)
	return maglevOrder{
		at:     int(binary.BigEndian.Uint64(sum[0:]) % MaglevSize),
		skip:   int(binary.BigEndian.Uint64(sum[8:])%(MaglevSize-1)) + 1,
		weight: max(1, int(e.Weight)),
	}
}

func (o *maglevOrder) next() { o.at = (o.at + o.skip) % MaglevSize }
