package plan

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
)

var historySeed = flag.Uint64("history.seed", 0, "run this one history only; 0 for a new set of them")

// TestHistoryDoesNotMatter feeds random events over a small world, where
// addresses, ports and names collide all the time. After each step the planner
// that followed must desire what a new one does, and its changes must
// lead there too.
func TestHistoryDoesNotMatter(t *testing.T) {
	seeds := []uint64{*historySeed}
	if *historySeed == 0 {
		first := uint64(time.Now().UnixNano())
		seeds = seeds[:0]
		for i := range uint64(2000) {
			seeds = append(seeds, first+i)
		}
	}
	for _, seed := range seeds {
		if problem := runHistory(seed); problem != "" {
			t.Fatalf("run again with -history.seed=%d:\n%s", seed, problem)
		}
	}
}

// mirror is the state of an observer that only sees changes.
type mirror struct {
	settings    Settings
	frontends   map[Key]*Frontend
	clusterIPs  map[netip.Addr]struct{}
	healthPorts map[uint16]struct{}
}

func runHistory(seed uint64) string {
	w := generator{rand.New(rand.NewPCG(seed, 0))}
	cfg := w.config()
	state, planner := model.NewState(), New(cfg)
	planner.many = []int{1, 3, manyEndpoints}[seed%3] // of which Services it keeps rosters
	m := mirror{frontends: map[Key]*Frontend{}, clusterIPs: map[netip.Addr]struct{}{}, healthPorts: map[uint16]struct{}{}}
	for step := range 12 {
		var dirty model.Dirty
		for range 1 + w.IntN(8) {
			state.Apply(&dirty, w.event())
		}
		checks, problems := maps.Clone(planner.Desired().HealthChecks), concerns(planner.Desired())
		var change *Change
		if w.one(8) {
			cfg = w.config()
			change = planner.SetConfig(state, cfg)
		} else {
			change = planner.Update(state, &dirty)
		}
		got := planner.Desired()
		if want := fromScratch(cfg, state); !reflect.DeepEqual(want, got) {
			return fmt.Sprintf("step %d: from scratch (-), incremental (+):\n%s", step, cmp.Diff(want, got, equalAddrs))
		}
		if problem := m.apply(change, got); problem != "" {
			return fmt.Sprintf("step %d: %s", step, problem)
		}
		if change.HealthChecks == reflect.DeepEqual(checks, got.HealthChecks) {
			return fmt.Sprintf("step %d: health checks changed: flagged %v", step, change.HealthChecks)
		}
		if change.Problems == reflect.DeepEqual(problems, concerns(got)) {
			return fmt.Sprintf("step %d: problems changed: flagged %v", step, change.Problems)
		}
		if change.Revision != state.Revision() {
			return fmt.Sprintf("step %d: revision %d of %d", step, change.Revision, state.Revision())
		}
	}
	return ""
}

// concern is the problems of an object, and whether this node records Events
// on it.
type concern struct {
	problems []model.Problem
	local    bool
}

func concerns(d *Desired) map[model.Object]concern {
	out := map[model.Object]concern{}
	for object, problems := range d.Problems {
		_, local := d.EventsOn[object]
		out[object] = concern{problems, local}
	}
	return out
}

// apply follows a change, which must be a real difference, and must lead to
// the very values that are desired.
func (m *mirror) apply(c *Change, want *Desired) string {
	if c.Settings != nil {
		m.settings = *c.Settings
	}
	for before, now := range c.Frontends() {
		if now == nil {
			now = before
		}
		if m.frontends[now.Key] != before {
			return fmt.Sprintf("%s is said to have been %+v, and was %+v", now.Key, before, m.frontends[now.Key])
		}
	}
	for _, key := range c.Removed {
		if m.frontends[key] == nil {
			return fmt.Sprintf("%s was removed without being there", key)
		}
		delete(m.frontends, key)
	}
	for _, f := range c.Set {
		if old := m.frontends[f.Key]; old != nil && reflect.DeepEqual(old, f) {
			return fmt.Sprintf("%s was set to what it was", f.Key)
		}
		m.frontends[f.Key] = f
	}
	for _, f := range c.Serving {
		old := m.frontends[f.Key]
		if old == nil || slices.Equal(old.AlsoServing, f.AlsoServing) {
			return fmt.Sprintf("%s is reported to differ in AlsoServing and does not", f.Key)
		}
		rules := *f
		rules.AlsoServing = old.AlsoServing
		if !reflect.DeepEqual(old, &rules) {
			return fmt.Sprintf("%s differs in more than AlsoServing, and is not in Set", f.Key)
		}
		m.frontends[f.Key] = f
	}
	for _, ip := range c.ClusterIPsRemoved {
		delete(m.clusterIPs, ip)
	}
	for _, ip := range c.ClusterIPsAdded {
		m.clusterIPs[ip] = struct{}{}
	}
	for _, port := range c.HealthPortsRemoved {
		delete(m.healthPorts, port)
	}
	for _, port := range c.HealthPortsAdded {
		m.healthPorts[port] = struct{}{}
	}
	healthPorts := map[uint16]struct{}{}
	for _, check := range want.HealthChecks {
		healthPorts[check.Port] = struct{}{}
	}
	switch {
	case !maps.Equal(m.healthPorts, healthPorts):
		return "health check ports: " + cmp.Diff(healthPorts, m.healthPorts)
	case !reflect.DeepEqual(m.settings, want.Settings):
		return "settings: " + cmp.Diff(want.Settings, m.settings, equalAddrs)
	case !maps.Equal(m.frontends, want.Frontends): // pointers
		return "frontends: " + cmp.Diff(want.Frontends, m.frontends, equalAddrs)
	case !maps.Equal(m.clusterIPs, want.ClusterIPs):
		return "ClusterIPs: " + cmp.Diff(want.ClusterIPs, m.clusterIPs, equalAddrs)
	}
	return ""
}

// generator is a small one: a handful of everything.
type generator struct{ *rand.Rand }

func (w generator) one(in int) bool { return w.IntN(in) == 0 }

func pick[T any](w generator, from ...T) T { return from[w.IntN(len(from))] }

// some picks up to most of them, in random order, with repetitions.
func some[T any](w generator, most int, from ...T) []T {
	var out []T
	for range w.IntN(most + 1) {
		out = append(out, pick(w, from...))
	}
	return out
}

func (w generator) config() Config {
	return Config{
		NodeName:      pick(w, here, here, here, "far"),
		DetectLocal:   pick(w, DetectNone, DetectClusterCIDR, DetectNodeCIDR, DetectBridgeInterface),
		ClusterCIDRs:  some(w, 2, prefixes("10.1.0.0/16", "fd00:1::/64")...),
		MasqueradeAll: w.one(4),
		MasqueradeBit: pick[uint8](w, 14, 15),
		NoExternalIPs: w.one(4),
		PortRanges:    !w.one(4),
		NodePortAddresses: NodePortAddresses{
			All: w.one(3), Primary: w.one(3), Prefixes: some(w, 1, prefixes("192.0.2.0/24", "::/0")...),
		},
		BridgeInterface: "cbr0",
	}
}

func (w generator) event() model.Event {
	switch w.IntN(20) {
	case 0:
		return model.SetNode{Node: w.node()}
	case 1:
		return model.SetHostIPs{IPs: some(w, 3, addrs("127.0.0.1", "192.0.2.1", "192.0.2.2", "2001:db8:2::1")...)}
	case 2:
		return model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{
			Name:     pick(w, "c1", "c2"),
			Prefixes: some(w, 2, prefixes("10.96.0.0/16", "10.96.0.0/24", "fd00:96::/112")...),
			Problems: w.problems(),
		}}
	case 3:
		return model.DeleteServiceCIDR{Name: pick(w, "c1", "c2")}
	case 4, 5, 6:
		return model.DeleteService{Name: w.serviceName()}
	case 7, 8:
		return model.DeleteSlice{Name: w.sliceName()}
	case 9, 10, 11, 12, 13:
		return model.SetSlice{Slice: w.slice()}
	}
	return model.SetService{Service: w.service()}
}

func (w generator) node() *model.Node {
	if w.one(3) {
		return nil
	}
	return &model.Node{
		Name:     here,
		Zone:     pick(w, "", "a", "b"),
		IPs:      some(w, 2, addrs("192.0.2.1", "192.0.2.2", "2001:db8:2::1")...),
		PodCIDRs: some(w, 2, prefixes("10.1.0.0/24", "fd00:1::/80")...),
		Problems: w.problems(),
	}
}

func (w generator) serviceName() model.Name { return named(pick(w, "a", "b", "c", "d")) }
func (w generator) sliceName() model.Name   { return named(pick(w, "s1", "s2", "s3", "s4", "s5")) }

func (w generator) problems() []model.Problem {
	if !w.one(6) {
		return nil
	}
	return []model.Problem{{Reason: pick(w, "odd", "queer")}}
}

func (w generator) service() *model.Service {
	s := &model.Service{
		Name:                w.serviceName(),
		Created:             pick(w, time.Time{}, year(2020), year(2021)),
		ClusterIPs:          some(w, 2, addrs("10.96.0.1", "10.96.0.2", "fd00:96::1", "fd00:96::2")...),
		ExternalIPs:         some(w, 2, addrs("198.51.100.1", "10.96.0.1", "2001:db8:1::1", "0.0.0.0")...),
		LoadBalancerIPs:     some(w, 2, addrs("198.51.100.1", "198.51.100.2", "2001:db8:1::1")...),
		InternalPolicy:      pick(w, model.PolicyCluster, model.PolicyLocal),
		ExternalPolicy:      pick(w, model.PolicyCluster, model.PolicyLocal),
		Affinity:            pick[uint32](w, 0, 0, 10800),
		Filtered:            w.one(2),
		FilterAll:           w.one(2),
		RoutedIPs:           some(w, 1, addrs("198.51.100.1", "198.51.100.2")...),
		PassThrough:         w.one(2),
		SourceRanges:        some(w, 2, prefixes("192.0.2.0/24", "192.0.2.1/32", "198.51.100.0/30", "2001:db8::/32")...),
		HealthCheckNodePort: pick[uint16](w, 0, 32000, 32001),
		Problems:            w.problems(),
	}
	for range 1 + w.IntN(2) {
		s.Ports = append(s.Ports, model.ServicePort{
			Name:     pick(w, "http", "dns"),
			Protocol: pick(w, model.TCP, model.UDP),
			Port:     pick[uint16](w, 80, 81),
			NodePort: pick[uint16](w, 0, 30080, 30081),
			Ranges:   some(w, 2, []model.PortRange{{First: 70, Last: 80}, {First: 80, Last: 90}, {First: 81, Last: 81}, {First: 85, Last: 100}}...),
		})
	}
	return s
}

func (w generator) slice() *model.Slice {
	f := pick(w, model.IPv4, model.IPv4, model.IPv6)
	s := &model.Slice{
		Name:     w.sliceName(),
		Service:  w.serviceName().Name,
		Family:   f,
		Problems: w.problems(),
	}
	for range w.IntN(3) {
		s.Ports = append(s.Ports, model.SlicePort{
			Name: pick(w, "http", "dns"), Protocol: pick(w, model.TCP, model.UDP), Port: pick[uint16](w, 8080, 8081),
		})
	}
	hints := &model.Hints{Zones: some(w, 1, "a", "b"), Nodes: some(w, 1, here, "far")}
	for range w.IntN(5) {
		e := pod(f, 1+w.IntN(5), pick(w, "", here, "far"), pick(w, ready, ready, draining, dying, starting, model.Serving, model.Ready))
		if w.one(2) {
			e.Hints = hints
		}
		if w.one(20) {
			e.Addr = netip.MustParseAddr("127.0.0.1")
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// TestOrderOfArrivalDoesNotMatter hands the same objects over in many orders,
// one by one.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	w := generator{rand.New(rand.NewPCG(seed, 1))}
	for range 100 {
		var events []model.Event
		seen := map[string]bool{}
		for range 30 {
			e := w.event()
			id := identity(e)
			if id != "" && !seen[id] {
				seen[id] = true
				events = append(events, e)
			}
		}
		var want *Desired
		for range 10 {
			state, planner := model.NewState(), New(defaults)
			for _, i := range w.Perm(len(events)) {
				follow(planner, state, events[i])
			}
			if want == nil {
				want = planner.Desired()
			} else if diff := cmp.Diff(want, planner.Desired(), equalAddrs); diff != "" {
				t.Fatalf("seed %d: one order (-), another (+):\n%s", seed, diff)
			}
		}
	}
}

// identity names the object that an event sets, nothing for one that deletes.
func identity(e model.Event) string {
	switch e := e.(type) {
	case model.SetService:
		return "service " + e.Name.String()
	case model.SetSlice:
		return "slice " + e.Name.String()
	case model.SetServiceCIDR:
		return "cidr " + e.Name
	case model.SetNode:
		return "node"
	case model.SetHostIPs:
		return "host"
	}
	return ""
}

func TestChangesAreInOrder(t *testing.T) {
	w := generator{rand.New(rand.NewPCG(1, 2))}
	state, planner := model.NewState(), New(defaults)
	for range 500 {
		c := follow(planner, state, w.event(), w.event(), w.event())
		if !slices.IsSortedFunc(c.Set, func(a, b *Frontend) int { return a.Key.Compare(b.Key) }) ||
			!slices.IsSortedFunc(c.Removed, Key.Compare) ||
			!slices.IsSortedFunc(c.ClusterIPsAdded, netip.Addr.Compare) ||
			!slices.IsSortedFunc(c.ClusterIPsRemoved, netip.Addr.Compare) {
			t.Fatalf("not sorted: %+v", c)
		}
	}
}
