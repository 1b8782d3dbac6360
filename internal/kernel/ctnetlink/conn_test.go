//go:build linux

package ctnetlink

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/netns/netnstest"
)

func TestSourceIsSetAndForgotten(t *testing.T) {
	ns := netnstest.New(t)
	c, err := Dial(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, p := range []inet.Protocol{inet.TCP, inet.UDP} {
		for _, a := range [][3]string{{"192.0.2.1:1000", "10.0.0.1:80", "10.0.0.2"}, {"[2001:db8::1]:1000", "[fd00::1]:80", "fd00::2"}} {
			f := Flow{p, netip.MustParseAddrPort(a[0]), netip.MustParseAddrPort(a[1])}
			client := netip.MustParseAddr(a[2])
			// What the endpoint sees, and so what connection tracking knows it by.
			seen := Flow{p, netip.AddrPortFrom(client, f.From.Port()), f.To}
			if _, err := c.OriginalDestination(seen); !errors.Is(err, unix.ENOENT) {
				t.Errorf("%v: before it is set: %v", f, err)
			}
			if err := c.SetSource(f, client, time.Minute); err != nil {
				t.Fatalf("%v: %v", f, err)
			}
			if to, err := c.OriginalDestination(seen); err != nil || to != f.To {
				t.Errorf("%v: the original destination is %v, %v", f, to, err)
			}
			if err := c.SetSource(f, client, time.Minute); !errors.Is(err, unix.EEXIST) {
				t.Errorf("%v: set again: %v", f, err)
			}
			for range 2 { // there is nothing to forget the second time
				if err := c.Forget(f); err != nil {
					t.Errorf("%v: forget: %v", f, err)
				}
			}
			if _, err := c.OriginalDestination(seen); !errors.Is(err, unix.ENOENT) {
				t.Errorf("%v: after it is forgotten: %v", f, err)
			}
		}
	}
}

// A connection that has ended makes room for another one with the same ports, and one
// that lasts does not.
func TestEndedConnectionsMakeRoom(t *testing.T) {
	ns := netnstest.New(t)
	c, err := Dial(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f := Flow{inet.TCP, netip.MustParseAddrPort("192.0.2.1:1000"), netip.MustParseAddrPort("10.0.0.1:80")}
	for state, room := range map[string]bool{"ESTABLISHED": false, "LAST_ACK": false, "TIME_WAIT": true, "CLOSE": true} {
		ns.Run(t, "", "conntrack", "-I", "-p", "tcp", "-s", "192.0.2.1", "--sport", "1000", "-d", "10.0.0.1", "--dport", "80", "--state", state, "-t", "100")
		err := c.SetSource(f, netip.MustParseAddr("10.0.0.2"), time.Minute)
		if room && err != nil || !room && !errors.Is(err, unix.EEXIST) {
			t.Errorf("%s: %v", state, err)
		}
		if err := c.Forget(f); err != nil {
			t.Fatal(err)
		}
	}
}
