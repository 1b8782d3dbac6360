package dataplane

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// Step by step a frontend becomes another one. Each step is small, has endpoints if both have some,
// and has and admits nothing that neither does.
func TestSteps(t *testing.T) {
	pool := func(from, to int) (all []plan.Endpoint) {
		for i := from; i < to; i++ {
			all = append(all, plan.Endpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 80)})
		}
		return all
	}
	ranges := func(n int) (all []netip.Prefix) {
		for _, e := range pool(0, n) {
			all = append(all, netip.PrefixFrom(e.Addr(), 32))
		}
		return all
	}
	frontend := func(endpoints []plan.Endpoint, sources []netip.Prefix) *plan.Frontend {
		return &plan.Frontend{Route: plan.Route{Endpoints: endpoints}, Filtered: sources != nil, Sources: sources,
			Outside: &plan.Route{Endpoints: endpoints[:len(endpoints)/2], Local: true}}
	}
	weighted := pool(0, 4*stepSize)
	for i := range weighted {
		weighted[i].Weight = uint16(1 + rand.IntN(3))
	}
	for _, tc := range []struct {
		name     string
		old, new *plan.Frontend
		steps    int // between them
	}{
		{"a few", frontend(pool(0, 100), nil), frontend(pool(10, 110), nil), 0},
		{"new", nil, frontend(pool(0, 4*stepSize), nil), 3},
		{"new and filtered", nil, frontend(pool(0, 10), ranges(4*stepSize-100)), 3},
		{"grows", frontend(pool(0, 10*stepSize), nil), frontend(pool(0, 11*stepSize+50), nil), 1},
		{"shrinks", frontend(pool(0, 4*stepSize), nil), frontend(pool(0, 100), nil), 3},
		{"replaced", frontend(pool(0, 2*stepSize), nil), frontend(pool(2*stepSize, 4*stepSize), nil), 3},
		{"very large", nil, frontend(pool(0, 1<<16), nil), maxSteps/2 - 1},
		{"removed", frontend(pool(0, 4*stepSize), ranges(2*stepSize)), nil, 3},
		{"other sources", frontend(pool(0, 1), ranges(3*stepSize-100)), frontend(pool(0, 1), ranges(100)), 2},
		{"sources split", frontend(pool(0, 1), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}), frontend(pool(0, 1), ranges(3*stepSize-100)), 2},
		{"filtered from now on", frontend(pool(0, 1), nil), frontend(pool(0, 1), ranges(3*stepSize-100)), 0},
		{"weighted from now on", frontend(pool(0, 4*stepSize), nil), frontend(weighted, nil), 0},
		{"weighted", nil, frontend(weighted, nil), 3},
		{"of another Service from now on", frontend(pool(0, 4*stepSize), nil), &plan.Frontend{Service: model.Name{Namespace: "b", Name: "web"}, Route: plan.Route{Endpoints: pool(0, 10)}}, 0},
		{"of another port from now on", frontend(pool(0, 4*stepSize), nil), &plan.Frontend{Port: "b", Route: plan.Route{Endpoints: pool(0, 10)}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, steps := tc.old, 0
			change := &plan.Change{Revision: 7}
			if tc.new != nil {
				change.Set = []*plan.Frontend{tc.new}
			} else {
				change.Removed = []plan.Key{{}}
			}
			for {
				part, left := Steps(change, func(plan.Key) *plan.Frontend { return now })
				if len(left) == 0 {
					if part != change {
						t.Error("the last step is not the change")
					}
					break
				}
				if len(part.Set) != 1 || len(part.Removed) != 0 || part.Revision != 7 {
					t.Fatalf("the part is %+v", part)
				}
				checkStep(t, tc.old, now, part.Set[0], tc.new)
				now = part.Set[0]
				if steps++; steps > 100 {
					t.Fatal("it has no end")
				}
			}
			if steps != tc.steps {
				t.Errorf("%d steps between, want %d", steps, tc.steps)
			}
		})
	}
}

func checkStep(t *testing.T, old, now, next, new *plan.Frontend) {
	t.Helper()
	if old == nil {
		old = &plan.Frontend{}
	}
	if now == nil {
		now = &plan.Frontend{}
	}
	if new == nil {
		new = emptied(old)
	}
	differences := 0
	for a, b := range plan.DifferentEndpoints(now.Route.Endpoints, next.Route.Endpoints) {
		if a == nil || b == nil {
			differences++
		}
	}
	if differences > room(now.Route.Endpoints, new.Route.Endpoints) {
		t.Errorf("%d endpoints differ", differences)
	}
	if len(old.Route.Endpoints) > 0 && len(new.Route.Endpoints) > 0 && len(next.Route.Endpoints) == 0 {
		t.Error("there is no endpoint")
	}
	if !slices.IsSortedFunc(next.Route.Endpoints, func(a, b plan.Endpoint) int { return a.Compare(b.AddrPort) }) {
		t.Error("the endpoints are not sorted")
	}
	for _, e := range next.Route.Endpoints {
		if !old.Route.Contains(e.AddrPort) && !new.Route.Contains(e.AddrPort) {
			t.Fatal("an endpoint of neither:", e)
		}
	}
	if old.Filtered && !next.Filtered {
		t.Error("everybody is admitted")
	}
	for _, s := range old.Sources {
		if covers := func(p netip.Prefix) bool { return p.Overlaps(s) && p.Bits() <= s.Bits() }; slices.ContainsFunc(new.Sources, covers) &&
			!slices.ContainsFunc(next.Sources, covers) {
			t.Fatal("a range of both is missing:", s)
		}
	}
	for _, s := range next.Sources {
		if !slices.Contains(old.Sources, s) && !slices.Contains(new.Sources, s) {
			t.Fatal("a range of neither:", s)
		}
	}
}

// Others of a change are written whole.
func TestStepsLeaveOthers(t *testing.T) {
	key := func(i int) plan.Key {
		return plan.Key{Addr: netip.MustParseAddr(fmt.Sprintf("10.96.0.%d", i)), Port: 80, Protocol: model.TCP}
	}
	var large []plan.Endpoint
	for i := range 3 * stepSize {
		large = append(large, plan.Endpoint{AddrPort: netip.AddrPortFrom(key(i/256).Addr, uint16(1+i))})
	}
	slices.SortFunc(large, func(a, b plan.Endpoint) int { return a.Compare(b.AddrPort) })
	change := &plan.Change{
		Set:     []*plan.Frontend{{Key: key(1)}, {Key: key(2), Route: plan.Route{Endpoints: large}}},
		Removed: []plan.Key{key(3), key(4)},
	}
	part, left := Steps(change, func(k plan.Key) *plan.Frontend {
		if k == key(3) {
			return &plan.Frontend{Key: k, Route: plan.Route{Endpoints: large}}
		}
		return nil
	})
	if len(left) != 2 || len(part.Removed) != 1 || part.Removed[0] != key(4) || len(part.Set) != 3 || part.Set[0] != change.Set[0] {
		t.Errorf("left %v of %+v", left, part)
	}
}
