package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/model"
)

// routeOf is a route to 10.0.0.1, 10.0.0.2 and so on, with these weights.
func routeOf(a model.Algorithm, weights ...uint16) *Route {
	r := &Route{Algorithm: a}
	for i, w := range weights {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).Next(), 80)
		r.Endpoints = append(r.Endpoints, Endpoint{AddrPort: at, Weight: w})
	}
	return r
}

// slotText writes the last numbers of the slots' addresses.
func slotText(slots []netip.AddrPort) string {
	var words []string
	for _, s := range slots {
		words = append(words, fmt.Sprint(s.Addr().As4()[3]))
	}
	return strings.Join(words, " ")
}

func TestSlots(t *testing.T) {
	tests := []struct {
		name  string
		route *Route
		want  string
	}{
		{"none", routeOf(model.Random), ""},
		{"without weights", routeOf(model.Random, 0, 0, 0), "1 2 3"},
		{"one is weighted", routeOf(model.Random, 3), "1"},
		{"as few as possible", routeOf(model.Random, 100, 50, 150), "1 1 2 3 3 3"},
		{"source hash", routeOf(model.SourceHash, 2, 1), "1 1 2"},
		{"round robin in turns", routeOf(model.RoundRobin, 3, 1, 2), "1 3 1 2 3 1"},
		{"round robin without weights", routeOf(model.RoundRobin, 0, 0), "1 2"},
		{"maglev of none", routeOf(model.Maglev), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			slots := tt.route.Slots()
			if got := slotText(slots); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if n := tt.route.NumSlots(); n != len(slots) {
				t.Errorf("NumSlots is %d, but there are %d", n, len(slots))
			}
		})
	}
}

// Whatever the weights are, there are not too many slots, everybody gets one, and
// shares are right to within one slot.
func TestSlotShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		weights := make([]uint16, 1+rng.IntN(600))
		most := 1 + rng.IntN(math.MaxUint16)
		sum := 0
		for i := range weights {
			weights[i] = uint16(1 + rng.IntN(most))
			sum += int(weights[i])
		}
		r := routeOf(model.Random, weights...)
		slots := r.Slots()
		if len(slots) != r.NumSlots() || len(slots) > max(maxWeightedSlots, 4*len(weights))+len(weights) {
			t.Fatalf("%d slots for %v, NumSlots is %d", len(slots), weights, r.NumSlots())
		}
		counts := map[netip.AddrPort]int{}
		for _, s := range slots {
			counts[s]++
		}
		for i, e := range r.Endpoints {
			got := counts[e.AddrPort]
			ideal := float64(weights[i]) / float64(sum) * float64(len(slots))
			if got == 0 || math.Abs(float64(got)-ideal) > 1+ideal/4 {
				t.Fatalf("%d slots for weight %d of %d, want about %.1f of %d", got, weights[i], sum, ideal, len(slots))
			}
		}
	}
}

func TestMaglevShares(t *testing.T) {
	for _, weights := range [][]uint16{{0}, {0, 0}, {0, 0, 0, 0, 0, 0, 0}, {3, 1}, {100, 50, 1}, {65535, 1}} {
		r := routeOf(model.Maglev, weights...)
		counts := map[netip.AddrPort]int{}
		for _, s := range r.Slots() {
			counts[s]++
		}
		sum := 0
		for _, w := range weights {
			sum += max(1, int(w))
		}
		for i, w := range weights {
			got := counts[r.Endpoints[i].AddrPort]
			if ideal := float64(max(1, int(w))) / float64(sum) * MaglevSize; got == 0 || math.Abs(float64(got)-ideal) > 3 {
				t.Errorf("%v: endpoint %d has %d slots, want %.0f", weights, i, got, ideal)
			}
		}
	}
}

// When one of n endpoints leaves, its clients move and few others do.
func TestMaglevDisruption(t *testing.T) {
	for _, n := range []int{2, 3, 5, 10, 50, 200, 400} {
		all := routeOf(model.Maglev, make([]uint16, n)...)
		before := all.Slots()
		for _, gone := range []int{0, n / 2, n - 1} {
			left := &Route{Algorithm: model.Maglev, Endpoints: slices.Delete(slices.Clone(all.Endpoints), gone, gone+1)}
			after := left.Slots()
			moved, others := 0, 0
			const clients = 10_000
			for c := range clients {
				slot := HashClient(netip.AddrFrom4([4]byte{192, 168, byte(c >> 8), byte(c)}), MaglevSize)
				if before[slot] == after[slot] {
					continue
				}
				moved++
				if before[slot] != all.Endpoints[gone].AddrPort {
					others++
				}
			}
			if limit := clients/n + clients/20; moved > limit {
				t.Errorf("%d of %d clients move when one of %d endpoints leaves (%d of other endpoints), want at most %d", moved, clients, n, others, limit)
			}
		}
	}
}

// The table must be the same in every version, or clients move during an upgrade.
func TestMaglevTableIsForEver(t *testing.T) {
	r := routeOf(model.Maglev, 3, 1, 2)
	r.Endpoints = append(r.Endpoints, Endpoint{AddrPort: netip.MustParseAddrPort("[2001:db8::1]:443"), Weight: 1})
	sum := sha256.Sum256([]byte(fmt.Sprint(r.Slots())))
	if got, want := hex.EncodeToString(sum[:8]), "6f7cee3868f3e3e9"; got != want {
		t.Errorf("the table's fingerprint is %s, want %s", got, want)
	}
}

// The numbers are the kernel's, as those of "jhash ip saddr mod 1000 seed 0x736c7563".
func TestHashClient(t *testing.T) {
	for text, want := range map[string]int{"10.0.0.1": 374, "10.0.0.2": 604, "2001:db8::1": 698} {
		if got := HashClient(netip.MustParseAddr(text), 1000); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	counts := make([]int, 4)
	for c := range 40_000 {
		counts[HashClient(netip.AddrFrom4([4]byte{10, 0, byte(c >> 8), byte(c)}), len(counts))]++
	}
	for i, n := range counts {
		if n < 9_000 || n > 11_000 {
			t.Errorf("%d of 40000 clients get number %d, want about 10000", n, i)
		}
	}
}

func TestEndpointOfClient(t *testing.T) {
	client := netip.MustParseAddr("10.9.9.9")
	for _, a := range []model.Algorithm{model.SourceHash, model.Maglev} {
		r := routeOf(a, 1, 2, 3)
		at, ok := r.Endpoint(client)
		if slots := r.Slots(); !ok || at != slots[HashClient(client, len(slots))] {
			t.Errorf("%s: %v, %v", a, at, ok)
		}
		if _, ok := routeOf(a).Endpoint(client); ok {
			t.Errorf("%s: an empty pool has an endpoint", a)
		}
	}
	if at, ok := routeOf(model.Random, 1, 2).Endpoint(client); ok {
		t.Errorf("random: %v", at)
	}
}
