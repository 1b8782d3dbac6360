//go:build linux

package localroute

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/netns/netnstest"
)

func TestRoutes(t *testing.T) {
	ns := netnstest.New(t)
	run := func(script string) string { t.Helper(); return ns.Run(t, "", "sh", "-ec", script) }
	run(`ip link set lo up; ip link add pod type veth peer name there; ip link set pod up; ip link set there up
ip addr add 198.51.100.1/24 dev pod; ip route add default via 198.51.100.2; sysctl -qw net.ipv4.ip_forward=1
ip rule add pref 91 lookup 7; ip route add local 203.0.113.1 dev lo table 7`)
	before := run(list)
	open := func() *Table {
		t.Helper()
		r, err := Open(ns.FD(), 51_007, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		if err := r.Read(inet.Families[:]); err != nil {
			t.Fatal(err)
		}
		return r
	}
	cluster, balancer := netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("2001:db8::1/128")
	want := map[netip.Prefix]struct{}{cluster: {}, balancer: {}}
	if err := open().Add(want, inet.Families[:]); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"local 10.96.0.0/12 dev lo proto 81 scope host",
		"local 2001:db8::1 dev lo proto 81",
		"from all ipproto tcp lookup 51007", "from all ipproto udp lookup 51007", "from all ipproto sctp lookup 51007",
	} {
		if text := run(list); !strings.Contains(text, line) {
			t.Errorf("lacks %q:\n%s", line, text)
		}
	}
	for what, local := range map[string]bool{
		"from 198.51.100.9 iif pod ipproto tcp":  true,
		"from 198.51.100.9 iif pod ipproto udp":  true,
		"from 198.51.100.9 iif pod ipproto icmp": false,
		"ipproto tcp":                            false, // of the node itself
	} {
		if to := run("ip route get 10.97.0.1 " + what); strings.Contains(to, "local 10.97.0.1") != local {
			t.Errorf("a packet %s takes the route %s", what, to)
		}
	}

	after := open() // of another process
	if !maps.Equal(want, after.Present) || !after.Ruled[inet.IPv4] || !after.Ruled[inet.IPv6] {
		t.Errorf("found the routes %v and the rules %v", after.Present, after.Ruled)
	}
	for _, f := range inet.Families {
		if intact, err := after.Intact(f); err != nil || !intact {
			t.Errorf("the rules of %v are intact: %v, %v", f, intact, err)
		}
	}
	all := run(list)
	if err := after.Add(want, inet.Families[:]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, run(list)); diff != "" {
		t.Errorf("adding the same again changed (-before +after):\n%s", diff)
	}
	if err := after.RemoveOthers(map[netip.Prefix]struct{}{cluster: {}}); err != nil {
		t.Fatal(err)
	}
	if text := run(list); strings.Contains(text, "2001:db8::1") || !strings.Contains(text, "10.96.0.0/12") {
		t.Errorf("wrong routes were removed:\n%s", text)
	}
	if err := after.RemoveAll(inet.Families[:]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, run(list)); diff != "" {
		t.Errorf("what was there before, and is there after removal (-before +after):\n%s", diff)
	}
}

const list = `for f in -4 -6; do ip $f rule; ip $f route show table 51007 2>/dev/null || true; ip $f route show table 7 2>/dev/null || true; done`
