//go:build linux

package neighbour

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/testkit"
)

// TestLearn: an address stays known while the kernel forgets who nobody asks for, until it fails.
func TestLearn(t *testing.T) {
	mac, other := MAC{2, 0, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 2}
	heard := func(state int, mac MAC) netlink.Neigh { return netlink.Neigh{State: state, HardwareAddr: mac[:]} }
	for _, tt := range []struct {
		name    string
		said    []netlink.Neigh
		want    MAC
		changes bool // by the last one
	}{
		{"reachable", []netlink.Neigh{heard(unix.NUD_REACHABLE, mac)}, mac, true},
		{"asked for", []netlink.Neigh{{State: unix.NUD_INCOMPLETE}}, MAC{}, false},
		{"no longer certain", []netlink.Neigh{heard(unix.NUD_REACHABLE, mac), heard(unix.NUD_STALE, mac)}, mac, false},
		{"another machine", []netlink.Neigh{heard(unix.NUD_REACHABLE, mac), heard(unix.NUD_STALE, other)}, other, true},
		{"gone", []netlink.Neigh{heard(unix.NUD_REACHABLE, mac), heard(unix.NUD_FAILED, mac)}, MAC{}, true},
		{"asked for again", []netlink.Neigh{heard(unix.NUD_STALE, mac), {State: unix.NUD_FAILED}, {State: unix.NUD_INCOMPLETE}}, MAC{}, false},
		{"back", []netlink.Neigh{heard(unix.NUD_STALE, mac), {State: unix.NUD_FAILED}, heard(unix.NUD_REACHABLE, mac)}, mac, true},
		{"no Ethernet", []netlink.Neigh{{State: unix.NUD_REACHABLE, HardwareAddr: []byte{1, 2, 3, 4}}}, MAC{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, changed := New(), false
			for _, n := range tt.said {
				select {
				case <-table.Changed:
				default:
				}
				n.LinkIndex, n.IP = 3, []byte{192, 0, 2, 1}
				table.learn(&n)
			}
			select {
			case <-table.Changed:
				changed = true
			default:
			}
			if got := table.MAC(3, netip.MustParseAddr("192.0.2.1")); got != tt.want || changed != tt.changes {
				t.Errorf("%v, changed %v; want %v, %v", got, changed, tt.want, tt.changes)
			}
			if got := table.MAC(4, netip.MustParseAddr("192.0.2.1")); got != (MAC{}) {
				t.Errorf("on another link it is %v", got)
			}
		})
	}
}

// TestLinks: where addresses are, and what is reached without a router.
func TestLinks(t *testing.T) {
	ns := netnstest.Enter(t)
	ns.Run(t, "", "sh", "-c", `ip link add one type veth peer two; ip link set one up; ip link set two up
ip addr add 192.0.2.11/24 dev one; ip -6 addr add 2001:db8::11/64 dev one nodad; ip addr add 198.51.100.11/24 dev two
ip route add 203.0.113.0/24 via 192.0.2.1; ip route add blackhole 203.0.114.0/24`)
	one, err := LinkNamed("one")
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]bool{"192.0.2.12": true, "2001:db8::12": true, "198.51.100.12": false, "203.0.113.1": false,
		"203.0.114.1": false, "192.0.2.11": false, "8.8.8.8": false} {
		if got := OnLink(one.Index, netip.MustParseAddr(to)); got != want {
			t.Errorf("%s is on the link: %v", to, got)
		}
	}
	for _, addr := range []string{"192.0.2.11", "2001:db8::11"} {
		with, err := LinkWith([]netip.Addr{{}, netip.MustParseAddr(addr)})
		if err != nil || with.Name != "one" || fmt.Sprint(with) != fmt.Sprint(one) {
			t.Errorf("%s is on %v, not on %v: %v", addr, with, one, err)
		}
	}
	_, err = LinkNamed("three")
	_, err2 := LinkWith([]netip.Addr{netip.MustParseAddr("192.0.2.99")})
	if !errors.Is(err, ErrNoLink) || !errors.Is(err2, ErrNoLink) {
		t.Errorf("what is not there: %v, %v", err, err2)
	}
}

// TestRun follows a kernel.
func TestRun(t *testing.T) {
	ns := netnstest.New(t)
	ns.Run(t, "", "sh", "-c", `ip link add one type veth peer wire; ip link set one up; ip link set wire up; ip addr add 192.0.2.11/24 dev one
ip neigh add 192.0.2.12 lladdr 02:00:00:00:00:12 dev one nud permanent`)
	var one Link
	if err := ns.Do(func() (err error) { one, err = LinkNamed("one"); return err }); err != nil {
		t.Fatal(err)
	}
	table := New()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- ns.Do(func() error { return table.Run(ctx) }) }()
	<-table.Ready
	is := func(addr string, want MAC) {
		t.Helper()
		testkit.Eventually(t, func() error {
			if got := table.MAC(one.Index, netip.MustParseAddr(addr)); got != want {
				return fmt.Errorf("%s is %v, want %v", addr, got, want)
			}
			return nil
		})
	}
	is("192.0.2.12", MAC{2, 0, 0, 0, 0, 0x12})
	ns.Run(t, "", "ip", "neigh", "add", "192.0.2.13", "lladdr", "02:00:00:00:00:13", "dev", "one")
	is("192.0.2.13", MAC{2, 0, 0, 0, 0, 0x13})
	ns.Run(t, "", "ip", "neigh", "replace", "192.0.2.13", "dev", "one", "nud", "failed")
	is("192.0.2.13", MAC{})
	before := table.Routes()
	ns.Run(t, "", "ip", "route", "add", "203.0.113.0/24", "dev", "one")
	testkit.Eventually(t, func() error {
		if table.Routes() == before {
			return errors.New("a route is not noticed")
		}
		return nil
	})
	if err := ns.Do(func() error { return Ask(one.Index, netip.MustParseAddr("192.0.2.14")) }); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
