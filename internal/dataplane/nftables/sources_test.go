//go:build linux

package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// withEveryLength adds frontends with source ranges of every length, by each protocol, node ports among them, and some
// that leave packets alone.
func withEveryLength(d *plan.Desired) *plan.Desired {
	for _, f := range []struct{ at, from, endpoint string }{
		{"198.51.100.2:443", "203.0.113.255", "10.244.0.1:8080"},
		{"[2001:db8:1::2]:443", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "[fd00:10:244::1]:8080"},
	} {
		from := netip.MustParseAddr(f.from)
		var all []netip.Prefix
		for bits := range from.BitLen() + 1 {
			all = append(all, netip.PrefixFrom(from, bits).Masked())
		}
		for _, protocol := range protocols {
			k := key(f.at, protocol)
			d.Frontends[k] = &plan.Frontend{Key: k, Kind: plan.LoadBalancerIP, Filtered: true, Sources: all,
				Route: plan.Route{Endpoints: pool(f.endpoint)}}
			k = plan.NodePortKey(k.Family(), 30443, protocol)
			d.Frontends[k] = &plan.Frontend{Key: k, Kind: plan.NodePort, Filtered: true, Sources: all, Masquerade: plan.MasqueradeAlways,
				Route: plan.Route{Endpoints: pool(f.endpoint)}}
			passes := plan.Route{Local: true, Empty: plan.Refusal{Verdict: plan.Pass, Cause: plan.NoLocalEndpoints}}
			k = plan.NodePortKey(k.Family(), 30444, protocol)
			d.Frontends[k] = &plan.Frontend{Key: k, Kind: plan.NodePort, Filtered: true, Sources: all[:1], Masquerade: plan.MasqueradeNode,
				Route: plan.Route{Endpoints: pool(f.endpoint)}, Outside: &passes}
			k = plan.NodePortKey(k.Family(), 30445, protocol)
			d.Frontends[k] = &plan.Frontend{Key: k, Kind: plan.NodePort, Masquerade: plan.MasqueradeNode, Route: passes}
		}
	}
	return d
}

// manySources is a frontend with as many source ranges from some number on, which are
// of several lengths.
func manySources(at, endpoint string, from, n int) *plan.Frontend {
	f := &plan.Frontend{Key: key(at, model.TCP), Kind: plan.LoadBalancerIP, Filtered: true, Masquerade: plan.MasqueradeAlways,
		Route: plan.Route{Endpoints: pool(endpoint)}}
	for i := from; i < from+n; i++ {
		first := f.Addr.AsSlice()
		binary.BigEndian.PutUint32(first, 0x20000000+uint32(i)<<8)
		ip, _ := netip.AddrFromSlice(first)
		bits := []int{24, 25, 32}[i%3]
		if ip.Is6() {
			bits *= 4
		}
		f.Sources = append(f.Sources, netip.PrefixFrom(ip, bits).Masked())
	}
	return f
}

var manySourcesAt = []struct{ family, at, endpoint string }{
	{"IPv4", "198.51.100.3:443", "10.244.0.1:8080"},
	{"IPv6", "[2001:db8:1::3]:443", "[fd00:10:244::1]:8080"},
}

// The kernel's sets of intervals take time in proportion to the square of their size.
func TestTenThousandSourceRanges(t *testing.T) {
	testkit.NotShort(t, "so many are compared with the kernel at leisure")
	testkit.NotInGuest(t, "it writes very many elements")
	const n = 10_000
	for _, tc := range manySourcesAt {
		t.Run(tc.family, func(t *testing.T) {
			ctx := t.Context()
			k := newKernel(t)
			d := k.dataplane()
			ok(t, d.Reconcile(ctx, variety()))
			before := d.snapshot(t)
			f := manySources(tc.at, tc.endpoint, 0, n)
			ok(t, dataplane.ApplyWhole(ctx, d, &plan.Change{Set: []*plan.Frontend{f}}))
			for _, tab := range d.tables {
				sets, err := d.reader.Sets(ctx, tab.Table)
				if err != nil || len(sets) == 0 {
					t.Fatal(sets, err)
				}
				for _, s := range sets {
					if s.Flags&unix.NFT_SET_INTERVAL != 0 {
						t.Errorf("%s is a set of intervals", s.Name)
					}
				}
			}

			// A range more, one less, and one replaced by another of a new length.
			shorter := manySources(tc.at, tc.endpoint, 1, n)
			shorter.Sources[0] = netip.PrefixFrom(shorter.Sources[0].Addr(), 20).Masked()
			r := ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{shorter}}))
			if r.Transactions != 1 || r.Elements > 10 {
				t.Errorf("the change of a few ranges took %d transactions and %d elements", r.Transactions, r.Elements)
			}
			if found, err := d.differs(ctx); err != nil || !found.empty() {
				t.Errorf("%v differs, %v", found, err)
			}

			want := variety()
			want.Frontends[f.Key] = shorter
			d = k.dataplane()
			if r := ok(t, d.Reconcile(ctx, want)); r.Transactions != 0 {
				t.Errorf("a restart took %d transactions and %d elements", r.Transactions, r.Elements)
			}
			ok(t, dataplane.ApplyWhole(ctx, d, &plan.Change{Removed: []plan.Key{f.Key}}))
			if after := d.snapshot(t); after != before {
				t.Errorf("after it was removed there is:\n%s\nand before it came there was:\n%s", after, before)
			}
		})
	}
}

// A list that is too long for one transaction is exchanged for another one in an order
// in which packets meet either the old one or the new one, complete.
func TestManySourceRangesAreReplacedInParts(t *testing.T) {
	const n, common, bound = 200, 100, 25
	for _, tc := range manySourcesAt {
		t.Run(tc.family, func(t *testing.T) {
			ctx := t.Context()
			d := newKernel(t).dataplane()
			old := manySources(tc.at, tc.endpoint, 0, n)
			desired := variety()
			desired.Frontends[old.Key] = old
			ok(t, d.Reconcile(ctx, desired))

			new := manySources(tc.at, tc.endpoint, n-common, n)
			new.Sources[n-1] = netip.PrefixFrom(new.Sources[n-1].Addr(), 22).Masked()
			names := []string{chainsFor(old, nil).verdict.name(), chainsFor(new, nil).verdict.name()}
			parts := 0
			d.bound, d.commit = bound, func(ctx context.Context, b *nft.Batch) error {
				if err := d.writer.Commit(ctx, b); err != nil {
					return err
				}
				parts++
				checkAdmitted(t, d, old, new, names)
				return nil
			}
			ok(t, d.Apply(ctx, &plan.Change{Set: []*plan.Frontend{new}}))
			if parts < 2*(n-common)/bound {
				t.Errorf("it was written in %d parts", parts)
			}
		})
	}
}

// checkAdmitted checks that the chain that the frontend's verdict leads to finds all the
// ranges that it is for in the kernel.
func checkAdmitted(t *testing.T, d *Dataplane, old, new *plan.Frontend, names []string) {
	t.Helper()
	var a arena
	tab := d.tables[slices.Index(model.Families[:], old.Family())].Table
	verdict := nft.Element{Key: a.frontendKey(old.Key)}
	if err := d.reader.Element(t.Context(), tab, services, &verdict); err != nil {
		t.Fatal(err)
	}
	var must []netip.Prefix
	switch verdict.Verdict.Chain {
	case names[0]:
		must = old.Sources
	case names[1]:
		must = new.Sources
	default:
		t.Fatalf("the verdict is %s", verdict.Verdict)
	}
	for _, p := range must {
		err := d.reader.Element(t.Context(), tab, sources, &nft.Element{Key: a.sourceKey(old.Key, p)})
		if errors.Is(err, unix.ENOENT) {
			t.Fatalf("%s is not admitted while the verdict is %s", p, verdict.Verdict)
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNamesOfFilterChains(t *testing.T) {
	e := chain{kind: entry, filtered: true, protocol: model.UDP, size: 3}
	for _, tc := range []struct {
		sources []netip.Prefix
		want    string
	}{
		{nil, "filter-all-lb-3"},
		{prefixes("10.0.0.0/8"), "filter-udp-8-lb-3"},
		{prefixes("0.0.0.0/0", "192.0.2.7/32", "10.0.0.0/8", "11.0.0.0/8"), "filter-udp-0.8.32-lb-3"},
		{prefixes("::/0", "::/64", "::/128"), "filter-udp-0.64.128-lb-3"},
		{prefixes("::/0", "::/1", "::/2", "::/3", "::/4", "::/64", "::/65", "::/127", "::/128"), "filter-udp-x1.8000000000000003.000000000000001f-lb-3"},
	} {
		if e.lengths = lengthsOf(tc.sources); e.name() != tc.want {
			t.Errorf("the chain for %v is %s, want %s", tc.sources, e.name(), tc.want)
		}
	}
}

// BenchmarkSourceRanges measures a Service with 10,000 source ranges that comes, changes
// by one of them, and goes.
func BenchmarkSourceRanges(b *testing.B) {
	const n = 10_000
	for _, tc := range manySourcesAt {
		d := newKernel(b).dataplane()
		ok(b, d.Reconcile(b.Context(), variety()))
		list := []*plan.Frontend{manySources(tc.at, tc.endpoint, 0, n), manySources(tc.at, tc.endpoint, 1, n)}
		set := func(i int) { ok(b, d.Apply(b.Context(), &plan.Change{Set: list[i%2 : i%2+1]})) }
		remove := func() { ok(b, d.Apply(b.Context(), &plan.Change{Removed: []plan.Key{list[0].Key}})) }
		b.Run(tc.family+"/add", func(b *testing.B) {
			for b.Loop() {
				set(0)
				b.StopTimer()
				remove()
				b.StartTimer()
			}
		})
		b.Run(tc.family+"/change", func(b *testing.B) {
			set(0)
			for i := 1; b.Loop(); i++ {
				set(i)
			}
			remove()
		})
		b.Run(tc.family+"/remove", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				set(0)
				b.StartTimer()
				remove()
			}
		})
	}
}
