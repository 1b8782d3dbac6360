//go:build linux

package leftover

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/base/inet"
	"sluice/internal/dataplane"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/kernel/netns/netnstest"
)

// command runs a command in the namespace and returns its output.
var command = netnstest.Run

// remove removes what is left over, while nothing is running.
func remove(t *testing.T) {
	t.Helper()
	if err := Remove(t.Context(), logr.Discard(), false); err != nil {
		t.Fatal(err)
	}
}

// key returns the key of the virtual service at an address and port.
func key(at string, protocol uint8) ipvs.Key {
	ap := netip.MustParseAddrPort(at)
	return ipvs.Key{Addr: ap.Addr(), Port: ap.Port(), Protocol: protocol}
}

func TestWhatUpstreamOwns(t *testing.T) {
	u := &Upstream{
		link:  &netlink.Dummy{},
		on:    map[netip.Addr]bool{netip.MustParseAddr("10.96.0.10"): true, netip.MustParseAddr("fd00:96::a"): true},
		ports: map[nodePort]bool{{unix.IPPROTO_TCP, 30080}: true},
	}
	tests := []struct {
		name string
		in   ipvs.Key
		want bool
	}{
		{"a cluster IP", key("10.96.0.10:80", unix.IPPROTO_TCP), true},
		{"a cluster IP of IPv6", key("[fd00:96::a]:53", unix.IPPROTO_UDP), true},
		{"a node port", key("192.0.2.1:30080", unix.IPPROTO_TCP), true},
		{"the port of another protocol", key("192.0.2.1:30080", unix.IPPROTO_UDP), false},
		{"a foreign address", key("192.0.2.1:80", unix.IPPROTO_TCP), false},
		{"an address of IPv6 that begins like one", key("[0a60:000a::]:80", unix.IPPROTO_TCP), false},
		{"a mark", ipvs.Key{Addr: netip.IPv4Unspecified(), Mark: 1}, false},
		{"nothing", ipvs.Key{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := u.Owns(tt.in); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if (&Upstream{ports: u.ports}).Owns(key("192.0.2.1:30080", unix.IPPROTO_TCP)) {
		t.Error("it owns a virtual service although its link is not there")
	}
}

func TestWhatIsDrained(t *testing.T) {
	u := &Upstream{link: &netlink.Dummy{}, on: map[netip.Addr]bool{netip.MustParseAddr("10.96.0.10"): true, netip.MustParseAddr("10.97.0.1"): true}}
	theirs := ipvs.Service{Key: key("10.96.0.10:80", unix.IPPROTO_TCP)}
	held := ipvs.Service{Key: key("10.96.0.10:81", unix.IPPROTO_TCP)}
	excluded := ipvs.Service{Key: key("10.97.0.1:80", unix.IPPROTO_TCP)}
	foreign := ipvs.Service{Key: key("192.0.2.9:80", unix.IPPROTO_TCP)}
	persistent := ipvs.Service{Key: key("192.0.2.9:81", unix.IPPROTO_TCP), Timeout: OwnerTimeout, Flags: ipvs.Persistent}
	ours := ipvs.Service{Key: key("10.97.0.1:81", unix.IPPROTO_TCP), Timeout: OwnerTimeout}
	all := []ipvs.Service{theirs, held, excluded, foreign, persistent, ours}
	for _, tt := range []struct {
		name    string
		running holder
		want    []ipvs.Service
	}{
		{"another mode", nil, []ipvs.Service{theirs, held, ours}},
		{"this mode", heldKeys{held.Key}, []ipvs.Service{theirs}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &drainer{running: tt.running}
			d.IPVS.ExcludeCIDRs = []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}
			var got []ipvs.Service
			for _, s := range all {
				if d.drains(s, u) {
					got = append(got, s)
				}
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// heldKeys is a Dataplane of this mode with these virtual services.
type heldKeys []ipvs.Key

func (h heldKeys) Holds(k ipvs.Key) bool {
	for _, held := range h {
		if held == k {
			return true
		}
	}
	return false
}

// ipvsSets are upstream's sets, and one of kube-router's.
const ipvsSets = `create KUBE-CLUSTER-IP hash:ip,port family inet
create KUBE-6-CLUSTER-IP hash:ip,port family inet6
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
create KUBE-6-NODE-PORT-LOCAL-UDP bitmap:port range 0-65535
create KUBE-6-NODE-PORT-LOCAL-SCTP-HAS hash:ip,port family inet6
create KUBE-SRC-ABCDEFGHIJKLMNOP hash:ip family inet
add KUBE-CLUSTER-IP 10.96.0.10,tcp:80
add KUBE-NODE-PORT-TCP 30080
add KUBE-NODE-PORT-TCP 30443
add KUBE-6-NODE-PORT-LOCAL-UDP 30053
add KUBE-6-NODE-PORT-LOCAL-SCTP-HAS 2001:db8::1,sctp:30132
`

func TestNodePortsFromSets(t *testing.T) {
	netnstest.Enter(t)
	command(t, ipvsSets, "ipset", "restore")
	got, err := nodePorts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[nodePort]bool{
		{unix.IPPROTO_TCP, 30080}: true, {unix.IPPROTO_TCP, 30443}: true,
		{unix.IPPROTO_UDP, 30053}: true, {unix.IPPROTO_SCTP, 30132}: true,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(nodePort{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	remove(t)
	if diff := cmp.Diff("KUBE-SRC-ABCDEFGHIJKLMNOP\n", command(t, "", "ipset", "list", "-name")); diff != "" {
		t.Errorf("sets that stay (-want +got):\n%s", diff)
	}
}

func TestSetInForeignUseIsReported(t *testing.T) {
	netnstest.Enter(t)
	command(t, "create KUBE-CLUSTER-IP hash:ip,port family inet\ncreate KUBE-LOOP-BACK hash:ip,port,ip family inet\n", "ipset", "restore")
	command(t, "*filter\n-A INPUT -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT\nCOMMIT\n", "iptables-nft-restore")
	err := Remove(t.Context(), logr.Discard(), false)
	if !errors.Is(err, errSetBusy) || !strings.Contains(err.Error(), "KUBE-CLUSTER-IP") {
		t.Errorf("error: %v", err)
	}
	if diff := cmp.Diff("KUBE-CLUSTER-IP\n", command(t, "", "ipset", "list", "-name")); diff != "" {
		t.Errorf("sets (-want +got):\n%s", diff)
	}
}

func TestIPv6SetNamesAreTruncated(t *testing.T) {
	tests := map[string]string{
		"KUBE-CLUSTER-IP":                "KUBE-6-CLUSTER-IP",
		"KUBE-LOAD-BALANCER-SOURCE-CIDR": "KUBE-6-LOAD-BALANCER-SOURCE-CID",
		"KUBE-NODE-PORT-LOCAL-SCTP-HASH": "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS",
	}
	for in, want := range tests {
		if got := ipv6Name(in); got != want {
			t.Errorf("%s is %s for IPv6, want %s", in, got, want)
		}
	}
}

// noise fails the test with every line that is logged.
func noise(t *testing.T) logr.Logger {
	return funcr.New(func(_, line string) { t.Errorf("logged: %s", line) }, funcr.Options{})
}

func TestNothingToRemoveOrDrain(t *testing.T) {
	netnstest.Enter(t)
	if err := Remove(t.Context(), noise(t), false); err != nil {
		t.Error(err)
	}
	err := Drain(t.Context(), dataplane.DrainOptions{
		Logger: noise(t), Report: func(d dataplane.Draining) { t.Errorf("reported %+v", d) },
	})
	if err != nil {
		t.Error(err)
	}
}

func TestSourceIPs(t *testing.T) {
	netnstest.Enter(t)
	check := func(ip4, ip6 string) {
		t.Helper()
		want := map[inet.Family]string{inet.IPv4: ip4, inet.IPv6: ip6}
		u, err := FindUpstream(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for f, got := range u.sourceIPs() {
			if got.IsValid() != (want[f] != "") || got.IsValid() && got.String() != want[f] {
				t.Errorf("the source of %v is %v, want %q", f, got, want[f])
			}
		}
	}
	check("", "")
	for _, script := range []string{
		"link add " + Link + " type bridge", "address add 10.96.0.10/32 dev " + Link, "address add fd00:96::a/128 dev " + Link,
		"link add plugin type bridge", "link set plugin up", "address add 10.244.0.1/24 dev plugin", "address add fd00:10:244::1/64 dev plugin nodad",
		"link add eth0 type bridge", "link set eth0 up", "address add 198.51.100.9/24 dev eth0", "address add 2001:db8:9::9/64 dev eth0 nodad",
	} {
		command(t, "", "ip", strings.Fields(script)...)
	}
	check("10.244.0.1", "fd00:10:244::1")
	command(t, "", "ip", "route", "add", "default", "via", "198.51.100.1")
	command(t, "", "ip", "-6", "route", "add", "default", "via", "2001:db8:9::1")
	check("198.51.100.9", "2001:db8:9::9")
	// The way leads over a link without an address.
	command(t, "", "ip", "address", "flush", "dev", "eth0")
	command(t, "", "ip", "address", "flush", "dev", "plugin")
	command(t, "", "ip", "route", "add", "default", "dev", "eth0")
	check("", "")
}
