package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestBacklogCombinesChanges(t *testing.T) {
	frontend := func(addr string, version uint32) *plan.Frontend {
		return &plan.Frontend{Key: webKey(addr), Affinity: version}
	}
	a, b := webKey("10.0.0.1"), webKey("10.0.0.2")
	before := func(was ...*plan.Frontend) map[plan.Key]*plan.Frontend {
		out := map[plan.Key]*plan.Frontend{}
		for _, f := range was {
			out[f.Key] = f
		}
		return out
	}
	tests := []struct {
		name string
		in   []*plan.Change
		want *plan.Change
	}{{
		name: "one change is itself",
		in:   []*plan.Change{{Revision: 3, Removed: []plan.Key{b, a}, Before: before(frontend("10.0.0.1", 1), frontend("10.0.0.2", 1))}},
		want: &plan.Change{Revision: 3, Removed: []plan.Key{b, a}, Before: before(frontend("10.0.0.1", 1), frontend("10.0.0.2", 1))},
	}, {
		name: "the later version of a frontend counts",
		in: []*plan.Change{
			{Revision: 1, Set: []*plan.Frontend{frontend("10.0.0.2", 1), frontend("10.0.0.1", 1)}},
			{Revision: 2, Set: []*plan.Frontend{frontend("10.0.0.2", 2)}, Before: before(frontend("10.0.0.2", 1))},
		},
		want: &plan.Change{Revision: 2, Set: []*plan.Frontend{frontend("10.0.0.1", 1), frontend("10.0.0.2", 2)}},
	}, {
		name: "what was set and then removed is removed, for the kernel may have an older version",
		in: []*plan.Change{
			{Revision: 1, Set: []*plan.Frontend{frontend("10.0.0.1", 1)}},
			{Revision: 2, Removed: []plan.Key{a}, Before: before(frontend("10.0.0.1", 1))},
		},
		want: &plan.Change{Revision: 2, Removed: []plan.Key{a}},
	}, {
		name: "what was removed and then set is set",
		in: []*plan.Change{
			{Revision: 1, Removed: []plan.Key{a, b}, Before: before(frontend("10.0.0.1", 1), frontend("10.0.0.2", 1))},
			{Revision: 2, Set: []*plan.Frontend{frontend("10.0.0.1", 2)}},
		},
		want: &plan.Change{Revision: 2, Set: []*plan.Frontend{frontend("10.0.0.1", 2)}, Removed: []plan.Key{b},
			Before: before(frontend("10.0.0.1", 1), frontend("10.0.0.2", 1))},
	}, {
		name: "the kernel is given what it has not been given before, and nothing else",
		in: []*plan.Change{
			{Set: []*plan.Frontend{frontend("10.0.0.1", 1)}, Serving: []*plan.Frontend{frontend("10.0.0.2", 1), frontend("10.0.0.3", 1)},
				Before: before(frontend("10.0.0.2", 0), frontend("10.0.0.3", 0))},
			{Set: []*plan.Frontend{frontend("10.0.0.3", 2)}, Serving: []*plan.Frontend{frontend("10.0.0.1", 2), frontend("10.0.0.2", 2)},
				Before: before(frontend("10.0.0.1", 1), frontend("10.0.0.2", 1), frontend("10.0.0.3", 1))},
		},
		want: &plan.Change{
			Set:     []*plan.Frontend{frontend("10.0.0.1", 2), frontend("10.0.0.3", 2)},
			Serving: []*plan.Frontend{frontend("10.0.0.2", 2)},
			Before:  before(frontend("10.0.0.2", 0), frontend("10.0.0.3", 0)),
		},
	}, {
		name: "a ClusterIP that came and went, or went and came, is no difference",
		in: []*plan.Change{
			{ClusterIPsAdded: []netip.Addr{a.Addr}, ClusterIPsRemoved: []netip.Addr{b.Addr}},
			{ClusterIPsAdded: []netip.Addr{b.Addr}, ClusterIPsRemoved: []netip.Addr{a.Addr}},
		},
		want: &plan.Change{},
	}, {
		name: "ClusterIPs of all changes are kept",
		in: []*plan.Change{
			{ClusterIPsAdded: []netip.Addr{b.Addr}},
			{ClusterIPsAdded: []netip.Addr{a.Addr}, ClusterIPsRemoved: []netip.Addr{netip.IPv6Loopback()}},
		},
		want: &plan.Change{ClusterIPsAdded: []netip.Addr{a.Addr, b.Addr}, ClusterIPsRemoved: []netip.Addr{netip.IPv6Loopback()}},
	}, {
		name: "health check ports that moved, came or went",
		in: []*plan.Change{
			{HealthPortsAdded: []uint16{1, 2}, HealthPortsRemoved: []uint16{3}},
			{HealthPortsAdded: []uint16{1, 4}, HealthPortsRemoved: []uint16{1, 2}},
		},
		want: &plan.Change{HealthPortsAdded: []uint16{1, 4}, HealthPortsRemoved: []uint16{3}},
	}, {
		name: "the last settings count, and what changed stays said",
		in: []*plan.Change{
			{Settings: &plan.Settings{MasqueradeMark: 1}, Problems: true},
			{Settings: &plan.Settings{MasqueradeMark: 2}, HealthChecks: true},
			{},
		},
		want: &plan.Change{Settings: &plan.Settings{MasqueradeMark: 2}, Problems: true, HealthChecks: true},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBacklog()
			for _, c := range tt.in {
				b.add(c, 0)
			}
			if diff := cmp.Diff(tt.want, b.next(0), cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("combined (-want +got):\n%s", diff)
			}
		})
	}
}

// tenantFrontend is a frontend of a Service with so many endpoints.
func tenantFrontend(namespace, service, addr string, endpoints int) *plan.Frontend {
	f := &plan.Frontend{Key: webKey(addr), Service: model.Name{Namespace: namespace, Name: service}}
	f.Route.Endpoints = make([]plan.Endpoint, endpoints)
	return f
}

func keysOf(c *plan.Change) (keys []plan.Key) {
	for _, f := range c.Set {
		keys = append(keys, f.Key)
	}
	return append(keys, c.Removed...)
}

// TestSmallChangesGoBetweenPortions: what arrives while a large change of another namespace, or
// of another Service of the same, is written, is in the next portion, and nothing is lost.
func TestSmallChangesGoBetweenPortions(t *testing.T) {
	for _, namespace := range []string{"large", "small"} {
		b := newBacklog()
		large := &plan.Change{Revision: 1}
		for i := range 100 {
			large.Set = append(large.Set, tenantFrontend("large", "huge", fmt.Sprintf("10.0.0.%d", i), portion/4))
		}
		b.add(large, portion)
		written := map[plan.Key]int{}
		write := func() *plan.Change {
			c := b.next(portion)
			for _, key := range keysOf(c) {
				written[key]++
			}
			b.done(c, nil)
			return c
		}
		if n := len(write().Set); n == 0 || n > 5 {
			t.Fatalf("the first portion has %d frontends", n)
		}
		for i := range 50 {
			small := tenantFrontend(namespace, fmt.Sprintf("web-%d", i), fmt.Sprintf("10.0.1.%d", i), 2)
			b.add(&plan.Change{Revision: uint64(2 + i), Set: []*plan.Frontend{small}}, portion)
			c := write()
			if len(c.Set) == 0 || c.Set[0] != small {
				t.Fatalf("the first frontend written next is %s, want %s of namespace %s", c.Set[0].Key, small.Key, namespace)
			}
		}
		for n := 0; !b.empty(); n++ {
			if n > 100 {
				t.Fatal("there is no end")
			}
			write()
		}
		for key, n := range written {
			if n != 1 {
				t.Errorf("%s was written %d times", key, n)
			}
		}
		if len(written) != 150 {
			t.Errorf("%d frontends were written, want 150", len(written))
		}
	}
}

// TestLargeServiceMayMakeSmallChanges: what counts is what differs, however large a Service is, unless
// all of it has to be written.
func TestLargeServiceMayMakeSmallChanges(t *testing.T) {
	const services = 50
	change := func(algorithm model.Algorithm) *plan.Change {
		c := &plan.Change{Before: map[plan.Key]*plan.Frontend{}}
		for i := range services {
			before, after := tenantFrontend("a", "web", fmt.Sprintf("10.0.0.%d", i), portion), tenantFrontend("a", "web", fmt.Sprintf("10.0.0.%d", i), portion)
			for _, f := range []*plan.Frontend{before, after} {
				f.Route.Algorithm = algorithm
				f.Outside = &plan.Route{Endpoints: f.Route.Endpoints[1:]}
				for k := range f.Route.Endpoints {
					f.Route.Endpoints[k].AddrPort = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(k >> 8), byte(k)}), 80)
				}
			}
			after.Route.Endpoints[7].AddrPort = netip.MustParseAddrPort("10.1.0.7:81")
			c.Set, c.Before[after.Key] = append(c.Set, after), before
		}
		return c
	}
	for algorithm, want := range map[model.Algorithm]int{model.Random: services, model.Maglev: 1} {
		b := newBacklog()
		b.add(change(algorithm), portion)
		if got := len(b.next(portion).Set); got != want {
			t.Errorf("%s: %d of %d frontends are in the first portion, want %d", algorithm, got, services, want)
		}
	}
}

// TestNamespacesTakeTurns: the many Services of one namespace do not go before the one of another.
func TestNamespacesTakeTurns(t *testing.T) {
	b := newBacklog()
	many := &plan.Change{}
	for i := range 200 {
		many.Set = append(many.Set, tenantFrontend("crowd", fmt.Sprintf("web-%d", i), fmt.Sprintf("10.0.0.%d", i), 4))
	}
	b.add(many, portion)
	b.done(b.next(portion/2), nil)
	quiet := tenantFrontend("quiet", "web", "10.0.1.1", 9)
	gone := webKey("10.0.1.2")
	b.add(&plan.Change{Set: []*plan.Frontend{quiet}, Removed: []plan.Key{gone},
		Before: map[plan.Key]*plan.Frontend{gone: tenantFrontend("gone", "web", "10.0.1.2", 1)}}, portion)
	c := b.next(portion / 2)
	if keys := keysOf(c)[:1]; keys[0] != quiet.Key {
		t.Errorf("first is %s, want that of the quiet namespace", keys[0])
	}
	if !slices.Contains(c.Removed, gone) {
		t.Error("the removal waits for the crowd")
	}
	if !b.has(model.Name{Namespace: "quiet", Name: "web"}) {
		t.Error("the Service has nothing to write before it is written")
	}
	b.done(c, nil)
	if b.has(model.Name{Namespace: "quiet", Name: "web"}) {
		t.Error("the Service still has something to write")
	}
}

// TestFlappingServiceDelaysItself: one that changes faster than it can be written is last each time,
// and is written in its newest version.
func TestFlappingServiceDelaysItself(t *testing.T) {
	b := newBacklog()
	for i := range 10 {
		var huge []*plan.Frontend
		for k := range 10 {
			huge = append(huge, tenantFrontend("a", "huge", fmt.Sprintf("10.0.0.%d", k), portion))
		}
		b.add(&plan.Change{Set: huge}, portion)
		small := tenantFrontend("a", "small", "10.0.1.1", 1)
		b.add(&plan.Change{Set: []*plan.Frontend{small}}, portion)
		c := b.next(portion)
		if i > 0 && c.Set[0] != small {
			t.Fatalf("first is %s, want the small one", c.Set[0].Key)
		}
		if last := c.Set[len(c.Set)-1]; !slices.Contains(huge, last) {
			t.Error("an old version was written")
		}
		b.done(c, nil)
	}
}

// TestLatecomerDoesNotHoldUpOthers: of a namespace of which much was written already, as much is written
// as of one that comes then and changes without end.
func TestLatecomerDoesNotHoldUpOthers(t *testing.T) {
	b := newBacklog()
	large := func(namespace string, from int) *plan.Change {
		c := &plan.Change{}
		for i := range 100 {
			c.Set = append(c.Set, tenantFrontend(namespace, "huge", fmt.Sprintf("10.0.%d.%d", from, i), portion/2))
		}
		return c
	}
	count := map[string]int{}
	write := func(n int) {
		for range n {
			c := b.next(portion)
			for _, f := range c.Set {
				count[f.Service.Namespace]++
			}
			b.done(c, nil)
		}
	}
	b.add(large("early", 0), portion)
	write(20)
	count = map[string]int{}
	for range 10 {
		b.add(large("late", 1), portion)
		write(1)
	}
	if early := count["early"]; early < 5 {
		t.Errorf("%d frontends of the one that was there were written, and %d of the one that came", early, count["late"])
	}
}

// TestClusterIPComesAfterItsFrontends: ports of a new ClusterIP that are not there yet are not
// rejected meanwhile.
func TestClusterIPComesAfterItsFrontends(t *testing.T) {
	b := newBacklog()
	first, last := tenantFrontend("a", "web", "10.0.0.1", portion), tenantFrontend("a", "web", "10.0.0.1", portion)
	last.Port, last.Key.Port = "b", 81
	b.add(&plan.Change{Set: []*plan.Frontend{first, last}, ClusterIPsAdded: []netip.Addr{first.Addr}}, portion)
	for i, want := range [][2]int{{1, 0}, {1, 0}, {0, 1}} {
		c := b.next(portion)
		if len(c.Set) != want[0] || len(c.ClusterIPsAdded) != want[1] {
			t.Fatalf("portion %d: %d frontends, %d ClusterIPs, want %d", i, len(c.Set), len(c.ClusterIPsAdded), want)
		}
		b.done(c, nil)
	}
	if !b.empty() {
		t.Error("something is left")
	}
}
