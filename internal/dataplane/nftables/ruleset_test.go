//go:build linux

package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

func TestListingOfNftLoadsAgain(t *testing.T) {
	for name, edit := range map[string]func(*plan.Desired){
		"node ports on chosen addresses": func(*plan.Desired) {},
		"node ports on every local address": func(d *plan.Desired) {
			d.Settings.NodePortAll4, d.Settings.NodePortAll6 = true, true
		},
		"ranges of ports":               func(d *plan.Desired) { withRanges(d) },
		"source ranges of every length": func(d *plan.Desired) { withEveryLength(d) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel(t)
			desired := k.loadable()
			edit(desired)
			loadsAgain(t, k, desired)
		})
	}
}

func TestListingOfAlgorithmsLoadsAgain(t *testing.T) {
	testkit.NotInGuest(t, "weights make very many elements")
	k := newKernel(t)
	loadsAgain(t, k, withAlgorithms(k.loadable()))
}

func loadsAgain(t *testing.T, k *kernel, desired *plan.Desired) {
	ctx := context.Background()
	d := k.dataplane()
	ok(t, d.Reconcile(ctx, desired))
	before := k.list()
	k.nft("flush ruleset\n"+before, "-f", "-")
	if diff := cmp.Diff(before, k.list()); diff != "" {
		t.Errorf("the listing changed when it was loaded (-before +after):\n%s", diff)
	}
	// The rules lack our tags now, and are written again; the elements stay.
	r := ok(t, d.Reconcile(ctx, desired))
	if r.Elements != 0 {
		t.Errorf("%d elements were written over a loaded listing, want none", r.Elements)
	}
	if diff := cmp.Diff(before, k.list()); diff != "" {
		t.Errorf("the listing changed by adopting it (-before +after):\n%s", diff)
	}
}

func TestNodePortsOnChosenAndAllAddresses(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	d, chosen := k.dataplane(), variety()
	ok(t, d.Reconcile(ctx, chosen))
	before := k.nft("", "list", "ruleset")
	all := chosen.Settings
	all.NodePortAll4, all.NodePortAll6 = true, true
	ok(t, d.Apply(ctx, &plan.Change{Settings: &all}))
	got := k.nft("", "list", "ruleset")
	for _, want := range []string{
		"ip daddr != 127.0.0.0/8 fib daddr type local meta l4proto . th dport vmap @nodeports",
		"ip6 daddr != ::1 fib daddr type local meta l4proto . th dport vmap @nodeports",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the listing lacks %q", want)
		}
	}
	if strings.Contains(got, "192.0.2.10") || strings.Contains(got, "@nodeport-ips") {
		t.Error("the addresses that were chosen are still there")
	}
	ok(t, d.Apply(ctx, &plan.Change{Settings: &chosen.Settings}))
	if diff := cmp.Diff(before, k.nft("", "list", "ruleset")); diff != "" {
		t.Errorf("there and back (-before +after):\n%s", diff)
	}
}

func TestListingIsReadable(t *testing.T) {
	k := newKernel(t)
	desired := withAffinity6(variety())
	sticky6 := desired.Frontends[key("[::]:30053", model.UDP)]
	ok(t, k.dataplane().Reconcile(context.Background(), desired))
	got := k.nft("", "list", "ruleset")
	affinityText := fmt.Sprintf("%016x", uint64(affinityOf(variety().Frontends[key("10.96.0.1:53", model.UDP)])))
	for _, want := range []string{
		"10.96.0.1 . tcp . 80 counter packets 0 bytes 0 : goto cluster-lb-2",
		"fd00:10:96::1 . tcp . 80 counter packets 0 bytes 0 : goto cluster-lb-2",
		"10.96.0.1 . sctp . 99 counter packets 0 bytes 0 : goto refuse",
		"10.96.0.1 . tcp . 98 counter packets 0 bytes 0 : drop",
		"tcp . 30080 counter packets 0 bytes 0 : goto split-node-nodeport-lb-2",
		"10.96.0.1 . tcp . 80 . 1 : 10.244.0.2 . 8080",
		"2001:db8:1::1 . 443 . 2001:db8:: . 6032",
		"2001:db8:1::1 . tcp . 443 counter packets 0 bytes 0 : goto filter-tcp-32-split-node-lb-2",
		"dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints",
		"10.96.0.1 . udp . 53 : jump recall-" + affinityText,
		"10.96.0.1 . udp . 53 : goto remember-" + affinityText + "-10800",
		"dnat ip6 to ip6 saddr . numgen random mod 1 offset",
		"@local-affinity-endpoints update @" + affinityOf(sticky6).clientMap(true).name() + " { ct original ip6 saddr . numgen random mod 1 offset",
		"timeout 1m : ct reply ip6 saddr . ct reply proto-src }",
		"ip saddr 10.244.0.0/16 return",
		"ip6 daddr fd00:10:96::/112 counter packets 0 bytes 0 drop",
		"ip daddr @cluster-ips counter packets 0 bytes 0 goto refuse",
		"ip6 daddr . th dport . ip6 saddr & ffff:ffff:: . numgen random mod 1 offset 6032 @sources goto split-node-lb-2",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the listing lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// cluster has that many Services with pools of one, two and three endpoints.
func cluster(services int) *plan.Desired {
	d := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{}, ClusterIPs: map[netip.Addr]struct{}{}}
	ip, pod := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.244.0.1")
	for i := range services {
		f := &plan.Frontend{Key: plan.Key{Addr: ip, Port: 80, Protocol: model.TCP}, Masquerade: plan.MasqueradeOffCluster}
		for range 1 + i%3 {
			f.Route.Endpoints = append(f.Route.Endpoints, plan.Endpoint{AddrPort: netip.AddrPortFrom(pod, 8080)})
			pod = pod.Next()
		}
		d.Frontends[f.Key] = f
		d.ClusterIPs[ip] = struct{}{}
		ip = ip.Next()
	}
	return d
}

func TestMoreServicesAddElementsOnly(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	d := k.dataplane()
	count := func() (chains, rules, sets int) {
		out := k.nft("", "-nn", "-t", "list", "ruleset")
		for line := range strings.Lines(out) {
			switch line = strings.TrimSpace(line); {
			case strings.HasPrefix(line, "chain "):
				chains++
			case strings.HasPrefix(line, "set "), strings.HasPrefix(line, "map "):
				sets++
			}
		}
		return chains, strings.Count(out, "\n"), sets
	}
	ok(t, d.Reconcile(ctx, cluster(10)))
	chains, rules, sets := count()
	ok(t, d.Reconcile(ctx, cluster(10_000)))
	c2, r2, s2 := count()
	if chains != c2 || rules != r2 || sets != s2 {
		t.Errorf("10 Services: %d chains, %d lines of rules, %d sets; 10,000: %d, %d, %d", chains, rules, sets, c2, r2, s2)
	}
	if len(d.tables[0].frontends) != 10_000 {
		t.Errorf("%d frontends, want 10,000", len(d.tables[0].frontends))
	}
}

func TestRemoveLeavesForeignTables(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	k.nft("table ip theirs {\n chain c { type filter hook input priority 0; accept; }\n }\n", "-f", "-")
	theirs := k.nft("", "list", "ruleset")
	ok(t, k.dataplane().Reconcile(ctx, variety()))
	for range 2 { // also when there is nothing to remove
		k.remove()
		if diff := cmp.Diff(theirs, k.nft("", "list", "ruleset")); diff != "" {
			t.Errorf("left behind (-want +got):\n%s", diff)
		}
	}
}

// withAlgorithms adds frontends with every algorithm, with and without weights.
func withAlgorithms(d *plan.Desired) *plan.Desired {
	for _, at := range []struct{ ip, pool string }{{"10.96.0.1", "10.244.0.%d:80"}, {"[fd00:10:96::1]", "[fd00:10:244::%d]:80"}} {
		for i, a := range []model.Algorithm{model.Random, model.RoundRobin, model.SourceHash, model.Maglev} {
			weighed := pool(fmt.Sprintf(at.pool, 1), fmt.Sprintf(at.pool, 2))
			weighed[0].Weight, weighed[1].Weight = 3, 1
			k := key(fmt.Sprintf("%s:%d", at.ip, 1000+i), model.TCP)
			d.Frontends[k] = &plan.Frontend{Key: k, Route: plan.Route{Endpoints: weighed, Algorithm: a}}
			if k.Addr.Is4() { // for IPv6, see loadable
				d.Frontends[k].Affinity = uint32(i%2) * 60
			}
		}
	}
	return d
}

func TestListingOfAlgorithms(t *testing.T) {
	testkit.NotInGuest(t, "weights make very many elements")
	k := newKernel(t)
	d := withAlgorithms(variety())
	ok(t, k.dataplane().Reconcile(context.Background(), d))
	got := k.nft("", "list", "ruleset")
	turn := fmt.Sprintf("turn-%016x-4", uint64(turnOf(d.Frontends[key("10.96.0.1:1001", model.TCP)])))
	maglev := d.Frontends[key("10.96.0.1:1003", model.TCP)]
	pooled := fmt.Sprintf("pool-%016x-4093", uint64(poolOf(maglev, &maglev.Route)))
	for _, want := range []string{
		"10.96.0.1 . tcp . 1000 counter packets 0 bytes 0 : goto lb-4",
		"10.96.0.1 . tcp . 1001 counter packets 0 bytes 0 : goto " + turn + "-sticky",
		"chain " + turn + " {",
		"dnat ip to ip daddr . meta l4proto . th dport . numgen inc mod 4 map @endpoints",
		"10.96.0.1 . tcp . 1002 counter packets 0 bytes 0 : goto hash-4",
		"dnat ip to ip daddr . meta l4proto . th dport . jhash ip saddr mod 4 seed 0x736c7563 map @endpoints",
		"10.96.0.1 . tcp . 1003 counter packets 0 bytes 0 : goto " + pooled + "-sticky",
		"fd00:10:96::1 . tcp . 1003 counter packets 0 bytes 0 : goto " + pooled,
		" . jhash ip6 saddr mod 4093 seed 0x736c7563 map @pools",
		"10.96.0.1 . tcp . 1000 . 2 : 10.244.0.1 . 80",
		"10.96.0.1 . tcp . 1000 . 3 : 10.244.0.2 . 80",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the listing lacks %q", want)
		}
	}
}
