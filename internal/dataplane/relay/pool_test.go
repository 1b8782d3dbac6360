package relay

import (
	"net/netip"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/model"
	"sluice/internal/testkit"
)

func endpoints(addrs ...string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range addrs {
		out = append(out, netip.AddrPortFrom(netip.MustParseAddr(a), 80))
	}
	return out
}

// favourite is the endpoint that a client gets first in all of many tries; the
// invalid one if they differ.
func (p *Pool) favourite(client netip.Addr) netip.AddrPort {
	first := p.candidates(client)[0]
	for range 100 {
		if p.candidates(client)[0] != first {
			return netip.AddrPort{}
		}
	}
	return first
}

func TestAffinityExpires(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	all := endpoints("10.0.0.1", "10.0.0.2", "10.0.0.3")
	client, other := testkit.Loopback(1), testkit.Loopback(2)
	p := NewBalancer(clock, "web").NewPool()
	p.Set(routeTo(all...), none, time.Minute)
	if got := p.favourite(client); got.IsValid() {
		t.Errorf("a new client only gets %v", got)
	}
	p.chose(client, all[1])
	for range 3 { // each connection begins the time anew
		clock.Step(59 * time.Second)
		if got := p.favourite(client); got != all[1] {
			t.Errorf("a client with affinity gets %v, want %v", got, all[1])
		}
		p.chose(client, all[1])
	}
	if got := p.favourite(other); got.IsValid() {
		t.Errorf("another client only gets %v", got)
	}
	clock.Step(time.Minute)
	if got := p.favourite(client); got.IsValid() {
		t.Errorf("after the timeout the client still only gets %v", got)
	}
}

func TestAffinityForgetsRemovedEndpoint(t *testing.T) {
	all := endpoints("10.0.0.1", "10.0.0.2", "10.0.0.3")
	p := NewBalancer(clocktesting.NewFakeClock(time.Now()), "web").NewPool()
	p.Set(routeTo(all...), none, time.Hour)
	p.chose(testkit.Loopback(1), all[0])
	p.Set(routeTo(all[1], all[2]), none, time.Hour)
	p.Set(routeTo(all...), none, time.Hour)
	if got := p.favourite(testkit.Loopback(1)); got.IsValid() {
		t.Errorf("the client only gets %v, though that left for a while", got)
	}
	p.chose(testkit.Loopback(1), all[0])
	p.Set(routeTo(all...), none, 0)
	if got := p.favourite(testkit.Loopback(1)); got.IsValid() {
		t.Errorf("without affinity the client only gets %v", got)
	}
}

// The pools of a service port share clients and turns.
func TestPoolsShareABalancer(t *testing.T) {
	all := endpoints("10.0.0.1", "10.0.0.2", "10.0.0.3")
	b := NewBalancer(clocktesting.NewFakeClock(time.Now()), "web")
	cluster, local := b.NewPool(), b.NewPool()
	cluster.Set(routeTo(all...), none, time.Hour)
	local.Set(routeTo(all[0], all[1]), none, time.Hour)
	client := testkit.Loopback(1)
	local.chose(client, all[1])
	if got := cluster.favourite(client); got != all[1] {
		t.Errorf("in the other pool the client gets %v, want %v", got, all[1])
	}
	if got, _, ok := b.Remembered(client); !ok || got != all[1] {
		t.Errorf("remembered is %v", got)
	}
	// It left one pool, and is forgotten when it leaves the other.
	local.Set(routeTo(all[0]), none, time.Hour)
	if got := local.candidates(client)[0]; got != all[0] {
		t.Errorf("the client gets %v, which is not in the pool", got)
	}
	if got := cluster.favourite(client); got != all[1] {
		t.Errorf("the client gets %v, although %v is still there", got, all[1])
	}
	cluster.Remove()
	if _, _, ok := b.Remembered(client); ok {
		t.Error("an endpoint of no pool is remembered")
	}

	route := routeTo(all...)
	route.Algorithm = model.RoundRobin
	cluster.Set(route, none, 0)
	local.Set(route, none, 0)
	seen := map[netip.AddrPort]int{}
	for range 9 {
		seen[cluster.candidates(client)[0]]++
		seen[local.candidates(client)[0]]++
	}
	for _, e := range all {
		if seen[e] != 6 {
			t.Errorf("%v has %d turns of 18, want 6", e, seen[e])
		}
	}
}

func TestAffinityIsBounded(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	all := endpoints("10.0.0.1", "10.0.0.2")
	p := NewBalancer(clock, "web").NewPool()
	p.Set(routeTo(all...), none, time.Hour)
	client := netip.MustParseAddr("127.1.0.0")
	oldest := client
	for range MaxAffinityEntries + 1 {
		clock.Step(time.Millisecond)
		p.chose(client, all[0])
		client = client.Next()
	}
	if len(p.clients) != MaxAffinityEntries {
		t.Errorf("%d clients are remembered, want %d", len(p.clients), MaxAffinityEntries)
	}
	if _, ok := p.clients[oldest]; ok {
		t.Error("the oldest is still among them")
	}
	// One that connects again is not the oldest any more.
	second := oldest.Next()
	p.chose(second, all[1])
	p.chose(client, all[0])
	if got := p.favourite(second); got != all[1] {
		t.Errorf("the client that connected again gets %v", got)
	}
	if _, ok := p.clients[second.Next()]; ok || p.byAge.Len() != MaxAffinityEntries {
		t.Errorf("the oldest is still among them, of %d", p.byAge.Len())
	}
}

func TestAffinityHoldsForConnections(t *testing.T) {
	for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
		t.Run(protocol.String(), func(t *testing.T) {
			b := newFixture(t, protocol)
			var ask func() string
			if protocol == model.TCP {
				b.set(time.Hour, named(t, "one", testkit.Loopback(2)), named(t, "two", testkit.Loopback(3)))
				ask = b.ask
			} else {
				b.set(time.Hour, answerUDP(t, "one", anyPort(2)), answerUDP(t, "two", anyPort(3)))
				ask = func() string { name, _ := b.client().ask(); return name }
			}
			first := ask()
			for range 50 {
				if got := ask(); got != first {
					t.Fatalf("answered by %s, and before by %s", got, first)
				}
			}
		})
	}
}

func TestAlgorithms(t *testing.T) {
	all := endpoints("10.0.0.1", "10.0.0.2")
	route := routeTo(all...)
	route.Endpoints[0].Weight, route.Endpoints[1].Weight = 3, 1
	p := NewBalancer(clocktesting.NewFakeClock(time.Now()), "web").NewPool()
	shares := func(algorithm model.Algorithm) int {
		route.Algorithm = algorithm
		p.Set(route, none, 0)
		n := 0
		for range 400 {
			if p.candidates(testkit.Loopback(1))[0] == all[0] {
				n++
			}
		}
		return n
	}
	if n := shares(model.Random); n < 240 || n > 360 {
		t.Errorf("%d of 400 go to the endpoint with three quarters of the weight", n)
	}
	if n := shares(model.RoundRobin); n != 300 {
		t.Errorf("by round robin it is %d of 400, want 300", n)
	}
	for _, algorithm := range []model.Algorithm{model.SourceHash, model.Maglev} {
		shares(algorithm)
		for i := range byte(20) {
			client := testkit.Loopback(i + 1)
			want, _ := route.Endpoint(client)
			if got := p.favourite(client); got != want {
				t.Errorf("%s: client %v gets %v, want %v", algorithm, client, got, want)
			}
		}
	}
}
