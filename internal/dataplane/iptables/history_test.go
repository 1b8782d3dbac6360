//go:build linux

package iptables

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

var (
	seed      = randomworld.SeedFlag()
	histories = flag.Int("histories", 0, "random event histories to try on the fake")
)

// manyHistories is how many of them are tried.
func manyHistories() int { return testkit.ExtentOr(*histories, 10, 25, 50) }

// A random history leaves the same as writing the last state from scratch, with many
// more frontends than a kernel could be given in the time, so that trees split and
// merge.
func TestTreesDoNotDependOnHistory(t *testing.T) {
	testkit.NotInGuest(t, "its kernel is a fake")
	t.Logf("seed %d (repeat with -seed)", *seed)
	ctx := context.Background()
	for i := range manyHistories() {
		rng := rand.New(rand.NewPCG(*seed, uint64(i)))
		hi, hs := newFakeDriver(), newFakeDriver()
		incremental, scratch := hi.dataplane(t), hs.dataplane(t)
		incremental.batch = 50 + rng.IntN(200)
		crowd := newCrowd(rng)
		if rng.IntN(2) == 0 {
			incremental.features.BPF, scratch.features.BPF = false, false
		}
		ok(t, incremental.Reconcile(ctx, crowd.desired))
		for range 1 + rng.IntN(8) {
			ok(t, dataplane.ApplyWhole(ctx, incremental, crowd.change()))
		}
		ok(t, scratch.Reconcile(ctx, crowd.desired))
		if hs.dump() != hi.dump() {
			diff := cmp.Diff(strings.Split(hs.dump(), "\n"), strings.Split(hi.dump(), "\n"))
			t.Fatalf("history %d of seed %d: from scratch (-) and by increments (+) differ:\n%s", i, *seed, diff)
		}
		crowd.checkWays(t, hi)
	}
}

// crowd is a random desired state with hundreds of frontends.
type crowd struct {
	*rand.Rand
	desired *plan.Desired
	next    int
}

func newCrowd(rng *rand.Rand) *crowd {
	c := &crowd{Rand: rng, desired: &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{}}}
	for range rng.IntN(300) {
		c.add()
	}
	return c
}

// add adds a service port with some frontends, and returns them.
func (c *crowd) add() []*plan.Frontend {
	c.next++
	base := plan.Frontend{Service: name(fmt.Sprint("svc", c.next)), Port: "p", Route: c.route(), Masquerade: plan.Masquerade(c.IntN(4))}
	if c.IntN(10) == 0 {
		base.Affinity = 60
	}
	var added []*plan.Frontend
	put := func(k plan.Key, kind plan.Kind) {
		if _, taken := c.desired.Frontends[k]; taken {
			return
		}
		f := base
		f.Key, f.Kind = k, kind
		if kind != plan.ClusterIP && c.IntN(3) == 0 {
			r := c.route()
			f.Outside = &r
		}
		if kind == plan.LoadBalancerIP && c.IntN(3) == 0 {
			f.Filtered, f.Sources = true, prefixes("10.0.0.0/8", "192.0.2.0/24")[:c.IntN(3)]
		}
		c.desired.Frontends[k] = &f
		added = append(added, &f)
	}
	protocol := []model.Protocol{model.TCP, model.UDP, model.SCTP}[c.IntN(3)]
	vip := netip.AddrFrom4([4]byte{10, 96, byte(c.IntN(3)), byte(c.IntN(256))})
	if c.IntN(3) == 0 {
		vip = netip.MustParseAddr("10.96.0.77") // very many ports on one address
	}
	put(plan.Key{Addr: vip, Port: uint16(1 + c.IntN(65535)), Protocol: protocol}, plan.ClusterIP)
	if c.IntN(2) == 0 {
		put(plan.Key{Addr: netip.IPv4Unspecified(), Port: uint16(30000 + c.IntN(2768)), Protocol: protocol}, plan.NodePort)
	}
	if c.IntN(3) == 0 {
		lb := netip.AddrFrom4([4]byte{byte(1 + c.IntN(200)), byte(c.IntN(256)), 1, 1})
		put(plan.Key{Addr: lb, Port: 443, Protocol: protocol}, plan.LoadBalancerIP)
	}
	return added
}

func (c *crowd) route() plan.Route {
	n := []int{0, 1, 1, 2, 2, 3, 5, 70, 300}[c.IntN(9)]
	first := netip.AddrFrom4([4]byte{10, 244, byte(c.IntN(20)), byte(c.IntN(256))})
	return plan.Route{Endpoints: many(first, n), Empty: plan.Refusal{Verdict: plan.Verdict(c.IntN(2)), Cause: plan.Cause(c.IntN(2))}}
}

// change changes a part of what is desired.
func (c *crowd) change() *plan.Change {
	change := &plan.Change{}
	keys := c.keys()
	for _, k := range keys {
		switch c.IntN(8) {
		case 0, 1:
			delete(c.desired.Frontends, k)
			change.Removed = append(change.Removed, k)
		case 2:
			f := *c.desired.Frontends[k]
			f.Route = c.route()
			if n := len(f.Route.Endpoints); n > 1 {
				at := c.IntN(n)
				f.Route.Endpoints = slices.Delete(slices.Clone(f.Route.Endpoints), at, at+1)
			}
			c.desired.Frontends[k] = &f
			change.Set = append(change.Set, &f)
		}
	}
	for range c.IntN(60) {
		change.Set = append(change.Set, c.add()...)
	}
	if c.IntN(6) == 0 {
		s := settings()
		s.IPv4 = plan.Detector{Sources: prefixes("10.244.0.0/17", "10.244.128.0/17")}
		s.NodePortIPs = many24(c.IntN(100))
		s.NodePortAll4 = c.IntN(3) == 0
		c.desired.Settings, change.Settings = s, &s
	}
	return change
}

func many24(n int) []netip.Addr {
	var list []netip.Addr
	for _, e := range many(netip.MustParseAddr("192.0.2.1"), n) {
		list = append(list, e.Addr())
	}
	return list
}

func (c *crowd) keys() []plan.Key {
	keys := make([]plan.Key, 0, len(c.desired.Frontends))
	for k := range c.desired.Frontends {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, plan.Key.Compare)
	return keys
}

// checkWays follows a packet to every frontend on the fake.
func (c *crowd) checkWays(t *testing.T, h *fakeDriver) {
	t.Helper()
	c.checkWaysTo(t, h, c.keys())
}

func (c *crowd) checkWaysTo(t *testing.T, h *fakeDriver, keys []plan.Key) {
	t.Helper()
	for _, k := range keys {
		f := c.desired.Frontends[k]
		to := k.Addr
		if k.NodePort() {
			if len(c.desired.Settings.NodePortIPs) == 0 {
				continue
			}
			to = c.desired.Settings.NodePortIPs[0]
		}
		p := packet{netip.AddrPortFrom(to, k.Port), k.Protocol}
		pool := f.Route.Endpoints
		if f.Outside != nil {
			pool = f.Outside.Endpoints
		}
		if len(pool) > 0 && !f.Filtered {
			w := h.tables[iptables.Table{Family: model.IPv4, Name: nat}].walk(servicesChain, p)
			if want := "--to-destination " + pool[len(pool)-1].String(); !containsEnd(w.last, want) {
				t.Fatalf("%s: a packet ends at %q, want %s", k, w.last, want)
			}
		}
	}
}

func containsEnd(s, end string) bool { return len(s) >= len(end) && s[len(s)-len(end):] == end }
