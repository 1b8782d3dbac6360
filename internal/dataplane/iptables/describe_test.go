//go:build linux

package iptables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// placeAt is where a packet goes that is for the frontend with that key.
var placeAt = dataplanetest.Destination

// described is the part of a Description that is compared.
type described struct {
	Present        bool
	Route, Outside string
}

// what is the text of all objects.
func what(d dataplane.Description) string {
	var b strings.Builder
	for _, o := range d.Objects {
		fmt.Fprintf(&b, "%s: %s\n", o.Where, o.What)
	}
	return b.String()
}

func TestDescribeReadsTheKernel(t *testing.T) {
	testkit.NotInGuest(t, "it runs very many programs of iptables")
	tests := []struct {
		name  string
		at    dataplane.Destination
		want  described
		rules []string
	}{
		{name: "ClusterIP", at: placeAt("10.96.0.1:80", model.TCP, ""),
			want: described{true, "[10.244.0.1:8080 10.244.0.2:8080]", "[]"},
			rules: []string{
				`iptables nat: -A KUBE-SERVICES ! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp -m comment --comment "test/web:p cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ`,
				"-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.244.0.1:8080",
				"-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.2:8080",
			}},
		{name: "of IPv6", at: placeAt("[fd00:10:96::1]:80", model.TCP, ""),
			want: described{true, "[[fd00:10:244::1]:8080 [fd00:10:244::2]:8080]", "[]"}},
		{name: "rejected", at: placeAt("10.96.0.1:99", model.SCTP, ""), want: described{true, "[]", "[]"},
			rules: []string{`iptables filter: -A KUBE-SERVICES -d 10.96.0.1/32 -p sctp -m comment --comment "test/sctp:p has no endpoints"`}},
		{name: "dropped", at: placeAt("10.96.0.1:98", model.TCP, ""), want: described{true, "[]", "[]"},
			rules: []string{"has no local endpoints"}},
		{name: "source ranges, and a pool for those outside", at: placeAt("198.51.100.1:443", model.TCP, ""),
			want: described{true, "[10.244.0.1:8080 10.244.0.2:8080]", "[10.244.0.1:8080]"},
			rules: []string{"-s 10.0.0.0/8 -m comment", "-s 192.0.2.128/25 -g KUBE-ROUTE-", "iptables filter: -A KUBE-PROXY-FIREWALL",
				"admits certain sources only"}},
		{name: "source ranges without endpoints", at: placeAt("198.51.100.1:444", model.TCP, ""), want: described{true, "[]", "[]"},
			rules: []string{"-A KUBE-EXTERNAL-SERVICES", "-A KUBE-PROXY-FIREWALL"}},
		{name: "node port without an endpoint for those outside", at: placeAt("0.0.0.0:30080", model.TCP, "192.0.2.10"),
			want: described{true, "[10.244.0.1:8080 10.244.0.2:8080]", "[]"},
			rules: []string{"iptables nat: -A KUBE-SERVICES -j KUBE-NODEPORT-IPS",
				"iptables nat: -A KUBE-NODEPORT-IPS -d 192.0.2.10/32 -g KUBE-NODEPORTS", "iptables filter: -A KUBE-REFUSED-NODEPORTS"}},
		{name: "node port", at: placeAt("[::]:30081", model.UDP, "2001:db8::10"),
			want:  described{true, "[[fd00:10:244::1]:8080 [fd00:10:244::2]:8080]", "[]"},
			rules: []string{"ip6tables nat: -A KUBE-NODEPORTS -p udp"}},
		{name: "another protocol", at: placeAt("10.96.0.1:80", model.UDP, ""), want: described{false, "[]", "[]"}},
		{name: "nothing", at: placeAt("10.96.0.7:80", model.TCP, ""), want: described{false, "[]", "[]"}},
		{name: "node port at another address", at: placeAt("0.0.0.0:30080", model.TCP, "192.0.2.11"), want: described{false, "[]", "[]"}},
	}
	inEachVariant(t, func(t *testing.T, k *kernel) {
		d := k.dataplane()
		ok(t, d.Reconcile(t.Context(), variety()))
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				got, err := d.Describe(t.Context(), tt.at, netip.Addr{})
				if err != nil {
					t.Fatal(err)
				}
				short := described{got.Present, fmt.Sprint(got.Route), fmt.Sprint(got.Outside)}
				if diff := cmp.Diff(tt.want, short); diff != "" {
					t.Errorf("(-want +got):\n%s\n%s", diff, what(got))
				}
				if got.RouteSize != len(got.Route) || got.OutsideSize != len(got.Outside) || got.Counted {
					t.Errorf("sizes are %d and %d, counted %t", got.RouteSize, got.OutsideSize, got.Counted)
				}
				for _, want := range tt.rules {
					if !strings.Contains(what(got), want) {
						t.Errorf("%q is not among\n%s", want, what(got))
					}
				}
				if !tt.want.Present && len(got.Objects) > 0 {
					t.Errorf("found\n%s", what(got))
				}
			})
		}
	})
}

// Random frontends, with trees and pools of all sizes, are described as they
// were programmed.
func TestDescribeRandomFrontends(t *testing.T) {
	testkit.NotInGuest(t, "its kernel is a fake")
	t.Logf("seed %d (repeat with -seed)", *seed)
	for i := range 1 + manyHistories()/5 {
		crowd := newCrowd(rand.New(rand.NewPCG(*seed, uint64(i))))
		d := newFakeDriver().dataplane(t)
		ok(t, d.Reconcile(t.Context(), crowd.desired))
		for _, k := range crowd.keys() {
			f := crowd.desired.Frontends[k]
			if f.Filtered && len(f.Sources) == 0 {
				continue // no packet reaches the endpoints
			}
			at := dataplane.Destination{Key: k, IP: k.Addr}
			if k.NodePort() {
				at.IP = netip.MustParseAddr("192.0.2.10")
			}
			got, err := d.Describe(t.Context(), at, netip.Addr{})
			if err != nil || !got.Present {
				t.Fatalf("history %d of seed %d: %s: %v, %+v", i, *seed, k, err, got)
			}
			checkPool(t, k, got.Route, got.RouteSize, &f.Route)
			checkPool(t, k, got.Outside, got.OutsideSize, f.Outside)
		}
	}
}

func checkPool(t *testing.T, k plan.Key, got []netip.AddrPort, size int, want *plan.Route) {
	t.Helper()
	var all []netip.AddrPort
	if want != nil {
		for _, e := range want.Endpoints {
			all = append(all, e.AddrPort)
		}
	}
	if diff := cmp.Diff(all[:min(len(all), dataplane.MaxDescribed)], got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" || size != len(all) {
		t.Fatalf("seed %d: %s has %d endpoints, want %d (-want +got):\n%s", *seed, k, size, len(all), diff)
	}
}

func TestDescribeRemembersClients(t *testing.T) {
	testkit.NotInGuest(t, "it runs very many programs of iptables")
	tests := []struct {
		name     string
		at       dataplane.Destination
		endpoint string
		client   string
		known    string // who is on the list, if not the client
	}{
		{"IPv4", placeAt("10.96.0.1:53", model.UDP, ""), "10.244.0.2:8080", "10.244.0.7", ""},
		{"IPv6", placeAt("[fd00:10:96::1]:53", model.UDP, ""), "[fd00:10:244::2]:8080", "fd00:10:244::7", ""},
		{"one of very many endpoints", placeAt("10.96.0.1:81", model.TCP, ""), "10.244.1.30:8080", "10.244.0.7", ""},
		{"another client", placeAt("10.96.0.1:53", model.UDP, ""), "10.244.0.2:8080", "10.244.0.7", "10.244.0.77"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inEachVariant(t, func(t *testing.T, k *kernel) {
				d := k.dataplane()
				desired := variety()
				ok(t, d.Reconcile(t.Context(), desired))
				f := desired.Frontends[tt.at.Key]
				list := idOf(f).clients(netip.MustParseAddrPort(tt.endpoint))
				known, want := tt.known, netip.AddrPort{}
				if known == "" {
					known, want = tt.client, netip.MustParseAddrPort(tt.endpoint)
				}
				k.run("", "sh", "-c", "echo +"+known+" > /proc/thread-self/net/xt_recent/"+list)
				got, err := d.Describe(t.Context(), tt.at, netip.MustParseAddr(tt.client))
				var found dataplane.Remembered
				if len(got.Remembered) > 0 {
					found = got.Remembered[0]
				}
				if err != nil || found.Endpoint != want {
					t.Fatalf("remembers %v, %v; want %s", got.Remembered, err, want)
				}
				whole := time.Duration(f.Affinity) * time.Second
				if want.IsValid() != (found.Expires > whole/2 && found.Expires <= whole) {
					t.Errorf("for another %s of %s", found.Expires, whole)
				}
				if want.IsValid() != strings.Contains(what(got), "recent "+list+": src=") {
					t.Errorf("found\n%s", what(got))
				}
			})
		})
	}
}

func TestFindClient(t *testing.T) {
	const list = "src=10.0.0.1 ttl: 64 last_seen: 4298878122 oldest_pkt: 1 4298878122\n" +
		"\n" +
		"src=10.0.0.2 ttl: 0 last_seen: nonsense oldest_pkt: 1 5\n" +
		"src=fd00:0000:0000:0000:0000:0000:0000:0001 ttl: 64 last_seen: 7 oldest_pkt: 2 6, 7\n"
	tests := []struct {
		name, client string
		line         int // from 1 on, 0 for none
		seen         uint64
	}{
		{"IPv4", "10.0.0.1", 1, 4298878122},
		{"IPv6", "fd00::1", 4, 7},
		{"no number", "10.0.0.2", 0, 0},
		{"not there", "10.0.0.3", 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := ""
			if tt.line > 0 {
				want = strings.Split(list, "\n")[tt.line-1]
			}
			if line, seen := findClient(list, netip.MustParseAddr(tt.client)); line != want || seen != tt.seen {
				t.Errorf("%q, %d; want %q, %d", line, seen, want, tt.seen)
			}
		})
	}
}

func TestDescribeAfterForeignDeletes(t *testing.T) {
	inEachVariant(t, func(t *testing.T, k *kernel) {
		d := k.dataplane()
		ok(t, d.Reconcile(t.Context(), variety()))
		at := placeAt("10.96.0.1:80", model.TCP, "")
		k.iptables("-t nat -D KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.2:8080")
		if got, err := d.Describe(t.Context(), at, netip.Addr{}); err != nil || !got.Present || fmt.Sprint(got.Route) != "[10.244.0.1:8080]" {
			t.Errorf("%+v, %v: want one endpoint", got, err)
		}
		k.iptables("-t nat -F KUBE-SERVICES")
		if got, err := d.Describe(t.Context(), at, netip.Addr{}); err != nil || got.Present {
			t.Errorf("%+v, %v: want nothing", got, err)
		}
	})
}

func TestProgress(t *testing.T) {
	desired := variety()
	tests := []struct {
		name string
		do   func(*Dataplane) dataplane.Result
		want int
	}{
		{"of a start", func(d *Dataplane) dataplane.Result { return d.Reconcile(t.Context(), desired) }, len(desired.Frontends)},
		{"of a change", func(d *Dataplane) dataplane.Result {
			return d.Apply(t.Context(), &plan.Change{Removed: []plan.Key{key("10.96.0.1:80", model.TCP), key("[fd00:10:96::1]:80", model.TCP)}})
		}, 2},
		{"of new settings", func(d *Dataplane) dataplane.Result {
			s := settings()
			s.MasqueradeMark = 1 << 15
			return d.Apply(t.Context(), &plan.Change{Settings: &s})
		}, 0},
		{"of another detector of pods", func(d *Dataplane) dataplane.Result {
			s := settings()
			s.IPv4, s.IPv6 = plan.Detector{Interface: "cni0"}, plan.Detector{Interface: "cni0"}
			return d.Apply(t.Context(), &plan.Change{Settings: &s})
		}, len(desired.Frontends) - 2},
	}
	d := newFakeDriver().dataplane(t)
	var told []dataplane.Progress
	d.OnProgress(func(p dataplane.Progress) { told = append(told, p) })
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			told = nil
			r := ok(t, tt.do(d))
			for i, p := range told {
				if p.Total != tt.want || i > 0 && (p.Done < told[i-1].Done || p.Transactions < told[i-1].Transactions) {
					t.Errorf("reported %+v after %+v, with %d to write", p, told[max(i-1, 0)], tt.want)
				}
			}
			if n := len(told); n < 3 || told[0] != (dataplane.Progress{Total: tt.want}) ||
				told[n-1] != (dataplane.Progress{Done: tt.want, Total: tt.want, Transactions: r.Transactions}) {
				t.Errorf("reported %+v", told)
			}
		})
	}
}
