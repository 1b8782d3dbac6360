//go:build linux

package ipvs

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/netns/netnstest"
)

// open opens IPVS in a namespace of its own. Kernels without it skip the test.
func open(t *testing.T) (*netnstest.Namespace, *Conn) {
	t.Helper()
	ns := netnstest.New(t)
	ns.Run(t, "", "ip", "link", "set", "lo", "up")
	for _, module := range []string{Module, SchedulerModule("rr"), SchedulerModule("wlc"), SchedulerModule("mh")} {
		if err := LoadModule(module); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Dial(ns.FD())
	if errors.Is(err, ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return ns, c
}

func commit(t *testing.T, c *Conn, add func(*Batch)) {
	t.Helper()
	b := &Batch{}
	add(b)
	if err := c.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func TestKernel(t *testing.T) {
	ns, c := open(t)
	key := Key{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: unix.IPPROTO_TCP}
	key6 := Key{Addr: netip.MustParseAddr("fd00:96::a"), Port: 53, Protocol: unix.IPPROTO_UDP}
	services := []Service{
		{Key: Key{Addr: netip.IPv4Unspecified(), Mark: 77}, Scheduler: "rr"},
		{Key: key, Scheduler: "rr", Timeout: 51007},
		{Key: key6, Scheduler: "mh", Flags: Fallback | HashPort},
	}
	one, two := netip.MustParseAddrPort("10.244.0.1:8080"), netip.MustParseAddrPort("10.244.0.2:8080")
	commit(t, c, func(b *Batch) {
		for i := range services {
			b.AddService(&services[i])
		}
		b.AddDestination(key, Destination{AddrPort: one, Weight: 1})
		b.AddDestination(key, Destination{AddrPort: two, Weight: 2})
		b.AddDestination(key6, Destination{AddrPort: netip.MustParseAddrPort("[fd00:244::1]:53"), Weight: 3})
	})
	if n := c.Commands(); n != 6 {
		t.Errorf("%d commands were counted, want 6", n)
	}
	saved := ns.Run(t, "", "ipvsadm", "-Sn")
	for _, line := range []string{"-A -t 10.96.0.10:80 -s rr", "-a -t 10.96.0.10:80 -r 10.244.0.2:8080 -m -w 2",
		"-A -u [fd00:96::a]:53 -s mh -b mh-fallback,mh-port", "-A -f 77 -s rr"} {
		if !strings.Contains(saved, line+"\n") {
			t.Errorf("ipvsadm does not list %q:\n%s", line, saved)
		}
	}

	list, err := c.Services(t.Context())
	slices.SortFunc(list, func(a, b Service) int { return a.Key.Compare(b.Key) })
	if err != nil || !slices.Equal(list, services) {
		t.Errorf("listed are %+v, %v; want %+v", list, err, services)
	}
	changed := Service{Key: key, Scheduler: "wlc", Timeout: 51007}
	commit(t, c, func(b *Batch) {
		b.SetService(&changed)
		b.SetDestination(key, Destination{AddrPort: one})
		b.DeleteDestination(key, two)
		b.DeleteService(key6)
	})
	if s, ok, err := c.Service(t.Context(), key); !ok || err != nil || s != changed {
		t.Errorf("service is %+v %v %v, want %+v", s, ok, err, changed)
	}
	if d, err := c.Destinations(t.Context(), key); err != nil || !slices.Equal(d, []Destination{{AddrPort: one}}) {
		t.Errorf("destinations are %+v, %v", d, err)
	}
	if _, ok, err := c.Service(t.Context(), key6); ok || err != nil {
		t.Errorf("a service that was deleted is found, or: %v", err)
	}
	if d, err := c.Destinations(t.Context(), key6); len(d) > 0 || err != nil {
		t.Errorf("destinations of a service that was deleted: %v, %v", d, err)
	}

	if err := c.SetTimeouts(Timeouts{TCP: 77 * time.Second, UDP: 88 * time.Second}); err != nil {
		t.Error(err)
	}
	if text := ns.Run(t, "", "ipvsadm", "-L", "--timeout"); !strings.Contains(text, "77 ") || !strings.HasSuffix(strings.TrimSpace(text), "88") {
		t.Errorf("timeouts are %s", text)
	}
}

// Refused commands are named, and do not keep others from taking effect.
func TestRefusedCommands(t *testing.T) {
	_, c := open(t)
	key := func(i int) Key {
		return Key{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80, Protocol: unix.IPPROTO_TCP}
	}
	const count = 3000 // several chunks
	b := &Batch{}
	for i := range count {
		b.AddService(&Service{Key: key(i), Scheduler: "rr"})
		if i%1000 == 500 {
			b.AddService(&Service{Key: key(i), Scheduler: "rr"})
			b.AddDestination(key(count+i), Destination{AddrPort: netip.MustParseAddrPort("10.244.0.1:80")})
		}
	}
	err := c.Commit(t.Context(), b)
	var refused Refused
	if !errors.As(err, &refused) || len(refused) != 6 {
		t.Fatalf("error is %v, want six refusals", err)
	}
	for i, r := range refused {
		want, why := key(i/2*1000+500), unix.EEXIST
		if i%2 == 1 {
			want, why = key(count+i/2*1000+500), unix.ESRCH
		}
		if r.Key != want || r.Err != why {
			t.Errorf("refused is %s: %v, want %s: %v", r.Key, r.Err, want, why)
		}
	}
	if list, err := c.Services(t.Context()); err != nil || len(list) != count {
		t.Errorf("%d services, %v; want %d", len(list), err, count)
	}
}
