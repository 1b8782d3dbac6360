package ipvs

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/netns/netnstest"
)

func TestRoutes(t *testing.T) {
	ns := netnstest.New(t)
	run := func(script string) string { t.Helper(); return ns.Run(t, "", "sh", "-ec", script) }
	run(`ip link set lo up; ip addr add 192.0.2.1/24 dev lo
ip rule add pref 91 lookup 7; ip route add local 203.0.113.1 dev lo table 7`)
	before := run(list)
	open := func() *routes {
		t.Helper()
		r, err := openRoutes(ns.FD())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.close)
		if err := r.read(model.Families[:]); err != nil {
			t.Fatal(err)
		}
		return r
	}
	cluster, balancer := netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("2001:db8::1/128")
	want := map[netip.Prefix]netip.Addr{cluster: netip.MustParseAddr("192.0.2.1"), balancer: {}}
	if err := open().add(want, model.Families[:]); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"local 10.96.0.0/12 dev lo proto 81 scope host src 192.0.2.1",
		"local 2001:db8::1 dev lo proto 81",
		"from all ipproto tcp lookup 51007", "from all ipproto udp lookup 51007", "from all ipproto sctp lookup 51007",
	} {
		if text := run(list); !strings.Contains(text, line) {
			t.Errorf("lacks %q:\n%s", line, text)
		}
	}
	if from := run("ip route get 10.97.0.1 ipproto tcp"); !strings.Contains(from, "local 10.97.0.1") || !strings.Contains(from, "src 192.0.2.1") {
		t.Errorf("a connection of the node takes the route %s", from)
	}
	if to := run("ip route get 10.97.0.1 ipproto icmp 2>&1 || true"); strings.Contains(to, "local") {
		t.Errorf("other protocols take the route %s", to)
	}

	after := open() // of another process
	if diff := cmp.Diff(want, after.present, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	all := run(list)
	if err := after.add(want, model.Families[:]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, run(list)); diff != "" {
		t.Errorf("adding the same again changed (-before +after):\n%s", diff)
	}
	if err := after.removeOthers(map[netip.Prefix]struct{}{cluster: {}}); err != nil {
		t.Fatal(err)
	}
	if text := run(list); strings.Contains(text, "2001:db8::1") || !strings.Contains(text, "10.96.0.0/12") {
		t.Errorf("wrong routes were removed:\n%s", text)
	}
	if err := after.removeAll(model.Families[:]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, run(list)); diff != "" {
		t.Errorf("what was there before, and is there after removal (-before +after):\n%s", diff)
	}
}

const list = `for f in -4 -6; do ip $f rule; ip $f route show table 51007 2>/dev/null || true; ip $f route show table 7 2>/dev/null || true; done`
