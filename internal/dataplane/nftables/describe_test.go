//go:build linux

package nftables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// placeOf is the destination of packets to a frontend at an address.
var placeOf = dataplanetest.Destination

func TestDescribeReadsElements(t *testing.T) {
	k := newKernel(t)
	d := k.dataplane()
	desired := withRanges(withAffinity6(variety()))
	ok(t, d.Reconcile(t.Context(), desired))
	client := func(local bool, addr string, at plan.Key) string {
		id := affinityOf(desired.Frontends[at])
		return fmt.Sprintf("%s { %s . %d . %d", id.clientMap(local).name(), addr, id.words()[0], id.words()[1])
	}
	k.nft("add element ip sluice "+client(false, "10.244.0.7", key("10.96.0.1:53", model.UDP))+" timeout 1h : 10.244.0.2 . 8080 }", "-f", "-")
	k.nft("add element ip6 sluice "+client(true, "2001:db8:1::7", key("[::]:30053", model.UDP))+" timeout 1h : fd00:10:244::1 . 53 }", "-f", "-")

	k.nft("delete element ip sluice services { 10.96.0.1 . tcp . 98 }\n"+
		"add element ip sluice services { 10.96.0.1 . tcp . 98 counter packets 7 bytes 420 : drop }", "-f", "-")

	tests := []struct {
		name    string
		at      dataplane.Destination
		client  string
		present bool
		route   string
		outside string
		objects []string
		recalls string
		refused uint64
	}{
		{name: "ClusterIP", at: placeOf("10.96.0.1:80", model.TCP, ""), present: true, route: "[10.244.0.1:8080 10.244.0.2:8080]", outside: "[]",
			objects: []string{
				"ip sluice, services: 10.96.0.1 . tcp . 80 counter packets 0 : goto cluster-lb-2",
				"ip sluice, endpoints: 10.96.0.1 . tcp . 80 . 0 : 10.244.0.1 . 8080",
				"ip sluice, endpoints: 10.96.0.1 . tcp . 80 . 1 : 10.244.0.2 . 8080",
			}},
		{name: "of IPv6", at: placeOf("[fd00:10:96::1]:80", model.TCP, ""), present: true,
			route: "[[fd00:10:244::1]:8080 [fd00:10:244::2]:8080]", outside: "[]"},
		{name: "dropped", at: placeOf("10.96.0.1:98", model.TCP, ""), present: true, route: "[]", outside: "[]",
			objects: []string{"ip sluice, services: 10.96.0.1 . tcp . 98 counter packets 7 : drop"}, refused: 7},
		{name: "source ranges, and a pool for those outside", at: placeOf("198.51.100.1:443", model.TCP, ""), present: true,
			route: "[10.244.0.1:8080 10.244.0.2:8080]", outside: "[10.244.0.1:8080]",
			objects: []string{
				"ip sluice, services: 198.51.100.1 . tcp . 443 counter packets 0 : goto filter-tcp-8.25-split-node-lb-2",
				"ip sluice, outside: 198.51.100.1 . tcp . 443 counter packets 0 : goto local-lb-1",
				"ip sluice, sources: 198.51.100.1 . 443 . 10.0.0.0 . 6008",
				"ip sluice, sources: 198.51.100.1 . 443 . 192.0.2.128 . 6025",
			}},
		{name: "node port", at: placeOf("0.0.0.0:30081", model.UDP, "192.0.2.10"), present: true,
			route: "[10.244.0.1:8080 10.244.0.2:8080]", outside: "[]",
			objects: []string{"ip sluice, nodeports: udp . 30081 counter packets 0 : goto masq-nodeport-lb-2"}},
		{name: "client that is remembered", at: placeOf("10.96.0.1:53", model.UDP, ""), client: "10.244.0.7", present: true,
			route: "[10.244.0.1:8080 10.244.0.2:8080]", outside: "[]", recalls: "10.244.0.2:8080"},
		{name: "client that is not", at: placeOf("10.96.0.1:53", model.UDP, ""), client: "10.244.0.8", present: true,
			route: "[10.244.0.1:8080 10.244.0.2:8080]", outside: "[]"},
		{name: "client of a node port from outside", at: placeOf("[::]:30053", model.UDP, "2001:db8::10"), client: "2001:db8:1::7", present: true,
			route: "[[fd00:10:244::1]:53 [fd00:10:244::2]:53]", outside: "[[fd00:10:244::1]:53]", recalls: "[fd00:10:244::1]:53"},
		{name: "range", at: dataplane.Destination{Key: plan.Key{Addr: netip.MustParseAddr("203.0.113.9"), Port: 10000, Last: 20000, Protocol: model.UDP}}, present: true,
			route: "[10.244.0.1:0 10.244.0.2:0]", outside: "[10.244.0.1:0]",
			objects: []string{
				"ip sluice, ranges-5: 203.0.113.9 . udp . 16384 counter packets 0 : goto split-node-lb-2-of-10000-20000",
				"ip sluice, range-outside-5: 203.0.113.9 . udp . 16384 counter packets 0 : goto local-lb-1-of-10000-20000",
				"ip sluice, range-endpoints: 203.0.113.9 . udp . 10000-20000 . 1 : 10.244.0.2",
			}},
		{name: "range that is not there", at: dataplane.Destination{Key: plan.Key{Addr: netip.MustParseAddr("203.0.113.9"), Port: 10000, Last: 20001, Protocol: model.UDP}}, route: "[]", outside: "[]"},
		{name: "nothing", at: placeOf("10.96.0.1:81", model.TCP, ""), route: "[]", outside: "[]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var client netip.Addr
			if tt.client != "" {
				client = netip.MustParseAddr(tt.client)
			}
			got, err := d.Describe(t.Context(), tt.at, client)
			if err != nil {
				t.Fatal(err)
			}
			if route := sortedText(got.Route); got.Present != tt.present || "["+strings.Join(route, " ")+"]" != tt.route || got.RouteSize != len(route) {
				t.Errorf("present %t, pool %v of %d", got.Present, route, got.RouteSize)
			}
			if outside := sortedText(got.Outside); "["+strings.Join(outside, " ")+"]" != tt.outside {
				t.Errorf("pool for those outside %v", outside)
			}
			if got.Refused != tt.refused || got.Connections != 0 {
				t.Errorf("%d connections, %d packets refused, want 0 and %d", got.Connections, got.Refused, tt.refused)
			}
			var objects []string
			for _, o := range got.Objects {
				objects = append(objects, o.Where+": "+o.What)
			}
			for _, want := range tt.objects {
				if !strings.Contains(strings.Join(objects, "\n"), want) {
					t.Errorf("%q is not among\n%s", want, strings.Join(objects, "\n"))
				}
			}
			recalls := ""
			for _, r := range got.Remembered {
				recalls += r.Endpoint.String()
				if r.Expires <= time.Minute || r.Expires > time.Hour {
					t.Errorf("remembers it for %s", r.Expires)
				}
			}
			if recalls != tt.recalls {
				t.Errorf("remembers %q, want %q", recalls, tt.recalls)
			}
		})
	}
}

func TestDescribeShowsForeignRemovals(t *testing.T) {
	k := newKernel(t)
	d := k.dataplane()
	ok(t, d.Reconcile(t.Context(), variety()))
	k.nft("delete element ip sluice services { 10.96.0.1 . tcp . 80 }", "-f", "-")
	k.nft("delete element ip sluice endpoints { 10.96.0.1 . tcp . 80 . 0 }", "-f", "-")
	got, err := d.Describe(t.Context(), placeOf("10.96.0.1:80", model.TCP, ""), netip.Addr{})
	if err != nil || got.Present || len(got.Route) != 1 {
		t.Errorf("%+v, %v: want no verdict and one endpoint", got, err)
	}
}

func TestLargeReconcileReportsProgress(t *testing.T) {
	d := newKernel(t).dataplane()
	var reported []dataplane.Progress
	d.OnProgress(func(p dataplane.Progress) { reported = append(reported, p) })
	const frontends = 25_000
	desired := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{}}
	for i := range frontends {
		k := plan.Key{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80, Protocol: model.TCP}
		desired.Frontends[k] = &plan.Frontend{Key: k}
	}
	ok(t, d.Reconcile(t.Context(), desired))
	if len(reported) < 3 {
		t.Fatalf("it reported %d times", len(reported))
	}
	for i, p := range reported {
		if p.Total != frontends || p.Transactions != i+1 || i > 0 && p.Done < reported[i-1].Done {
			t.Errorf("it reported %+v after %+v", p, reported[max(i-1, 0)])
		}
	}
	if last := reported[len(reported)-1]; last.Done < frontends/2 {
		t.Errorf("it ended with %+v", last)
	}
}
