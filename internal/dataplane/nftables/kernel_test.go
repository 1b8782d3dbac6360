//go:build linux

package nftables

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// What tests of all dataplanes share.
var (
	ok       = dataplanetest.OK
	prefixes = testkit.Prefixes
	addrs    = testkit.Addrs
	pool     = dataplanetest.Endpoints
	key      = dataplanetest.Key
)

// kernel is a network namespace for a test.
type kernel struct {
	t  testing.TB
	ns *netnstest.Namespace
}

func newKernel(t testing.TB) *kernel {
	t.Helper()
	return &kernel{t, netnstest.New(t)}
}

// nft runs nft(8) in the namespace.
func (k *kernel) nft(input string, args ...string) string {
	k.t.Helper()
	return k.ns.Run(k.t, input, "nft", args...)
}

func (k *kernel) dataplane() *Dataplane {
	k.t.Helper()
	d, err := New(Options{Logger: logr.Discard(), NetNS: k.ns.FD()})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { d.Close() })
	return d
}

// remove removes what Remove does, in the namespace.
func (k *kernel) remove() {
	k.t.Helper()
	err := k.ns.Do(func() error { return Remove(k.t.Context(), dataplane.RemoveOptions{Logger: logr.Discard()}) })
	if err != nil {
		k.t.Fatal(err)
	}
}

// settings of a node with everything switched on.
func settings() plan.Settings {
	s := dataplanetest.Settings()
	s.ServiceCIDRs = prefixes("10.96.0.0/12", "fd00:10:96::/112")
	return s
}

// variety has a frontend of every sort, in both families.
func variety() *plan.Desired {
	d := &plan.Desired{
		Settings:   settings(),
		Frontends:  map[plan.Key]*plan.Frontend{},
		ClusterIPs: map[netip.Addr]struct{}{},
	}
	add := func(f plan.Frontend) { d.Frontends[f.Key] = &f }
	for _, ip := range addrs("10.96.0.1", "fd00:10:96::1") {
		d.ClusterIPs[ip] = struct{}{}
	}
	v4, v6 := pool("10.244.0.1:8080", "10.244.0.2:8080"), pool("[fd00:10:244::1]:8080", "[fd00:10:244::2]:8080")
	v4[0].Local, v6[0].Local = true, true
	add(plan.Frontend{Key: key("10.96.0.1:80", model.TCP), Route: plan.Route{Endpoints: v4}, Masquerade: plan.MasqueradeOffCluster})
	add(plan.Frontend{Key: key("[fd00:10:96::1]:80", model.TCP), Route: plan.Route{Endpoints: v6}, Masquerade: plan.MasqueradeOffCluster})
	add(plan.Frontend{Key: key("10.96.0.1:53", model.UDP), Affinity: 10800, Route: plan.Route{Endpoints: v4}, Masquerade: plan.MasqueradeNever})
	add(plan.Frontend{Key: key("10.96.0.1:99", model.SCTP), Route: plan.Route{}, Masquerade: plan.MasqueradeNever})
	add(plan.Frontend{Key: key("10.96.0.1:98", model.TCP), Route: plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}})
	for _, lb := range []struct {
		addr, port string
		eps        []plan.Endpoint
		from       []netip.Prefix
	}{
		{"198.51.100.1", "0.0.0.0", v4, prefixes("10.0.0.0/8", "192.0.2.128/25")},
		{"2001:db8:1::1", "[::]", v6, prefixes("2001:db8::/32")},
	} {
		k := plan.Key{Addr: netip.MustParseAddr(lb.addr), Port: 443, Protocol: model.TCP}
		add(plan.Frontend{Key: k, Kind: plan.LoadBalancerIP, Route: plan.Route{Endpoints: lb.eps},
			Outside: &plan.Route{Endpoints: lb.eps[:1], Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}, Masquerade: plan.MasqueradeNode, Filtered: true, Sources: lb.from})
		np := key(lb.port+":30080", model.TCP)
		add(plan.Frontend{Key: np, Kind: plan.NodePort, Route: plan.Route{Endpoints: lb.eps},
			Outside: &plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}, Masquerade: plan.MasqueradeNode})
		np = key(lb.port+":30081", model.UDP)
		add(plan.Frontend{Key: np, Kind: plan.NodePort, Route: plan.Route{Endpoints: lb.eps}, Masquerade: plan.MasqueradeAlways})
	}
	return d
}

// loadable is all of which nft can load its own listing. Version 1.0.6 lists
// session affinity of IPv6 frontends, but aborts when it loads that.
func (k *kernel) loadable() *plan.Desired {
	k.t.Helper()
	version := k.nft("", "--version")
	k.t.Logf("listing and loading with %s", version)
	if strings.Contains(version, " v1.0.6 ") {
		return variety()
	}
	return withAffinity6(variety())
}

// withAffinity6 adds session affinity to IPv6 frontends too.
func withAffinity6(d *plan.Desired) *plan.Desired {
	k := key("[fd00:10:96::1]:53", model.UDP)
	d.Frontends[k] = &plan.Frontend{Key: k, Affinity: 60,
		Route: plan.Route{Endpoints: pool("[fd00:10:244::1]:53", "[fd00:10:244::2]:53")}}
	np := key("[::]:30053", model.UDP)
	d.Frontends[np] = &plan.Frontend{Key: np, Affinity: 60, Kind: plan.NodePort, Masquerade: plan.MasqueradeNode,
		Route:   plan.Route{Endpoints: pool("[fd00:10:244::1]:53", "[fd00:10:244::2]:53")},
		Outside: &plan.Route{Endpoints: pool("[fd00:10:244::1]:53")}}
	return d
}

// differs returns how the kernel differs from the mirror.
func (d *Dataplane) differs(ctx context.Context) (found foreignWrites, err error) {
	err = d.check(ctx, func(s *foreignWrites) { found.join(s) })
	return found, err
}

// snapshot reads our tables in a normal form: endpoints are not in the order of slots.
func (d *Dataplane) snapshot(t testing.TB) string {
	t.Helper()
	ctx := context.Background()
	var b strings.Builder
	for _, f := range model.Families {
		l := layouts[f]
		tables, err := ourTables(ctx, d.reader, l, tableNames)
		if err != nil {
			t.Fatal(err)
		}
		for _, tab := range tables {
			have, err := d.readContents(ctx, d.reader, l, tab, nil)
			if err != nil {
				t.Fatal(err)
			}
			have.print(&b)
		}
	}
	return b.String()
}

func (k *contents) print(b *strings.Builder) {
	fmt.Fprintf(b, "table %s %s\n", k.table.Family, k.table.Name)
	for _, name := range slices.Sorted(maps.Keys(k.chains)) {
		c := k.chains[name]
		fmt.Fprintf(b, " chain %s %s %d %d rules %x\n", name, c.Type, c.Hook, c.Priority, k.rules[name])
	}
	for _, key := range slices.SortedFunc(maps.Keys(k.frontends), plan.Key.Compare) {
		p := k.frontends[key]
		fmt.Fprintf(b, " %s -> %s outside %s sticky %s\n", key, p.verdict, p.outside, p.sticky)
		fmt.Fprintf(b, "  pool %v\n  outside %v\n  filters %v sources %v\n", sortedText(p.slots), sortedText(p.outsideSlots), p.filters, sortedText(p.sources))
	}
	fmt.Fprintf(b, " hairpin %v\n cluster IPs %v\n node port IPs %v\n junk %v\n",
		sortedKeys(k.members[hairpin]), sortedKeys(k.members[clusterIPs]), sortedKeys(k.members[nodePortIPs]), k.junk)
}

func sortedText[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	slices.Sort(out)
	return out
}

func sortedKeys(list []nft.Element) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = fmt.Sprintf("%x", e.Key)
	}
	slices.Sort(out)
	return out
}

func netipAddrPort(a [4]byte, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(a), port)
}
