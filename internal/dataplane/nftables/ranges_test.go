//go:build linux

package nftables

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestBlocksOfRanges(t *testing.T) {
	for _, r := range []model.PortRange{{First: 1, Last: 65535}, {First: 10000, Last: 20000}, {First: 7, Last: 7}, {First: 65535, Last: 65535}, {First: 1, Last: 1},
		{First: 4096, Last: 8191}, {First: 32768, Last: 65535}, {First: 3, Last: 12}} {
		ports := map[int]int{}
		blocks := blocksOf(r)
		for _, b := range blocks {
			for i := range 1 << (portBits - b.bits) {
				ports[int(b.port)+i]++
			}
		}
		if len(ports) != int(r.Last-r.First)+1 || ports[int(r.First)] != 1 || ports[int(r.Last)] != 1 || len(blocks) > 2*portBits-2 {
			t.Errorf("%s: %d blocks have %d ports", r, len(blocks), len(ports))
		}
		for p, n := range ports {
			if n != 1 {
				t.Errorf("%s: port %d is in %d blocks", r, p, n)
			}
		}
	}
}

// rangeFrontend returns a frontend with a range of ports at an address.
func rangeFrontend(ip string, first, last uint16, p model.Protocol, pods ...string) *plan.Frontend {
	f := &plan.Frontend{Key: plan.Key{Addr: netip.MustParseAddr(ip), Port: first, Last: last, Protocol: p}, Masquerade: plan.MasqueradeOffCluster}
	for _, pod := range pods {
		f.Route.Endpoints = append(f.Route.Endpoints, plan.Endpoint{AddrPort: netip.AddrPortFrom(netip.MustParseAddr(pod), 0)})
	}
	return f
}

// withRanges adds frontends of ranges of every kind.
func withRanges(d *plan.Desired) *plan.Desired {
	add := func(f *plan.Frontend) { d.Frontends[f.Key] = f }
	for _, at := range [][4]string{{"10.96.0.1", "203.0.113.9", "10.244.0.1", "10.244.0.2"}, {"fd00:10:96::1", "2001:db8:1::9", "fd00:10:244::1", "fd00:10:244::2"}} {
		add(rangeFrontend(at[0], 10000, 20000, model.UDP, at[2], at[3]))
		add(rangeFrontend(at[0], 10000, 20000, model.TCP, at[2]))
		add(rangeFrontend(at[0], 40000, 40000, model.TCP))
		outside := rangeFrontend(at[1], 10000, 20000, model.UDP, at[2], at[3])
		outside.Masquerade = plan.MasqueradeNode
		outside.Outside = &plan.Route{Endpoints: outside.Route.Endpoints[:1], Local: true}
		add(outside)
		closed := rangeFrontend(at[1], 30000, 30100, model.UDP, at[2])
		closed.Outside = &plan.Route{Local: true, Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}
		add(closed)
		filtered := rangeFrontend(at[1], 1, 9999, model.TCP, at[2], at[3])
		bits := 24
		filtered.Filtered, filtered.Sources = true, []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(at[0]), bits).Masked()}
		filtered.Route.Algorithm = model.SourceHash
		add(filtered)
		turn := rangeFrontend(at[1], 50000, 65535, model.TCP, at[2], at[3])
		turn.Route.Algorithm = model.RoundRobin
		add(turn)
	}
	return d
}

func TestListingOfRanges(t *testing.T) {
	k := newKernel(t)
	ok(t, k.dataplane().Reconcile(context.Background(), withRanges(variety())))
	got := k.nft("", "list", "ruleset")
	for _, want := range []string{
		"ip daddr @range-ips jump find-range",
		"ip daddr . meta l4proto . th dport & 65504 vmap @ranges-11",
		"10.96.0.1 . udp . 16384 counter packets 0 bytes 0 : goto cluster-lb-2-of-10000-20000",
		"10.96.0.1 . tcp . 40000 counter packets 0 bytes 0 : goto reject-of-40000-40000",
		"ip daddr . meta l4proto . th dport & 65504 vmap @range-outside-11",
		"203.0.113.9 . udp . 16384 counter packets 0 bytes 0 : goto local-lb-1-of-10000-20000",
		"203.0.113.9 . udp . 30016 counter packets 0 bytes 0 : goto drop-of-30000-30100",
		"ip daddr . meta l4proto . numgen random mod 1 offset 75535 @range-filters drop",
		"dnat to ip daddr . meta l4proto . numgen random mod 1 offset 655380000 . numgen random mod 2 map @range-endpoints",
		"dnat to ip6 daddr . meta l4proto . numgen random mod 1 offset 655380000 . numgen random mod 1 map @range-local-endpoints",
		"goto filter-tcp-24-cluster-hash-2-of-1-9999",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the listing lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// Ranges come and go with all that is there for them only.
func TestRangesComeAndGo(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	d, without := k.dataplane(), variety()
	ok(t, d.Reconcile(ctx, without))
	before := k.list()
	change, back := &plan.Change{}, &plan.Change{}
	for key, f := range withRanges(variety()).Frontends {
		if key.IsRange() {
			change.Set, back.Removed = append(change.Set, f), append(back.Removed, key)
		}
	}
	ok(t, d.Apply(ctx, change))
	with := k.list()
	if r := ok(t, k.dataplane().Reconcile(ctx, withRanges(variety()))); r.Elements != 0 {
		t.Errorf("another process wrote %d elements, want none", r.Elements)
	}
	if diff := cmp.Diff(with, k.list()); diff != "" {
		t.Errorf("another process changed the table:\n%s", diff)
	}
	ok(t, d.Apply(ctx, back))
	if diff := cmp.Diff(before, k.list()); diff != "" {
		t.Errorf("something of ranges was left (-before +after):\n%s", diff)
	}
}

// A range takes the place of one that it overlaps, also if that is removed in a later portion of the
// change.
func TestRangeInPlaceOfAnother(t *testing.T) {
	ctx := context.Background()
	k := newKernel(t)
	d, desired := k.dataplane(), variety()
	old := rangeFrontend("10.96.0.1", 10000, 20000, model.UDP, "10.244.0.1")
	desired.Frontends[old.Key] = old
	ok(t, d.Reconcile(ctx, desired))
	new := rangeFrontend("10.96.0.1", 15000, 25000, model.UDP, "10.244.0.2")
	ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{new}}))
	ok(t, d.Apply(ctx, &plan.Change{Removed: []plan.Key{old.Key}}))
	delete(desired.Frontends, old.Key)
	desired.Frontends[new.Key] = new
	if r := ok(t, k.dataplane().Reconcile(ctx, desired)); r.Elements != 0 {
		t.Errorf("%d elements had to be mended", r.Elements)
	}
	ok(t, d.Reconcile(ctx, desired))
	back := rangeFrontend("10.96.0.1", 12000, 16000, model.UDP, "10.244.0.1")
	delete(desired.Frontends, new.Key)
	desired.Frontends[back.Key] = back
	ok(t, d.Reconcile(ctx, desired))
}

// BenchmarkRanges changes, adds and removes one of 1,001 ranges, at addresses of their own and all at one.
func BenchmarkRanges(b *testing.B) {
	for name, at := range map[string]func(i int) (addr, first int){
		"addresses": func(i int) (int, int) { return i, 10_000 },
		"address":   func(i int) (int, int) { return 0, 60 * i },
	} {
		d, desired := newKernel(b).dataplane(), variety()
		frontend := func(i, pod int) *plan.Frontend {
			addr, first := at(i)
			ip := netip.AddrFrom4([4]byte{10, 96, byte(1 + addr/200), byte(1 + addr%200)})
			return rangeFrontend(ip.String(), uint16(first+1), uint16(first+57), model.UDP, netip.AddrFrom4([4]byte{10, 244, 1, byte(pod)}).String())
		}
		for i := range 1000 {
			f := frontend(i, 1)
			desired.Frontends[f.Key] = f
		}
		ok(b, d.Reconcile(b.Context(), desired))
		one := frontend(1001, 1)
		set := func(f *plan.Frontend) { ok(b, d.Apply(b.Context(), &plan.Change{Set: []*plan.Frontend{f}})) }
		remove := func() { ok(b, d.Apply(b.Context(), &plan.Change{Removed: []plan.Key{one.Key}})) }
		b.Run(name+"/add and remove", func(b *testing.B) {
			for b.Loop() {
				set(one)
				remove()
			}
		})
		b.Run(name+"/change", func(b *testing.B) {
			set(one)
			for i := 0; b.Loop(); i++ {
				set(frontend(1001, 1+i%2))
			}
		})
	}
}
