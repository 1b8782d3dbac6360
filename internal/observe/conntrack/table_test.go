//go:build linux

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// The kernel's routing table says which addresses are local.
func TestNodePortsByRoute(t *testing.T) {
	n := newNamespace(t)
	n.shell(`ip link set lo up
		ip route add local 203.0.113.0/28 dev lo
		ip route add local 2001:db8:5::/64 dev lo
		ip route add blackhole 203.0.113.64/28`)
	r := n.reconciler(Options{})
	stale := []entry{
		{name: "by a route", to: "203.0.113.5:30053", by: "10.244.1.3:5353", protocol: model.UDP},
		{name: "IPv6, by a route", to: "[2001:db8:5::5]:30053", by: "[fd00:244::3]:5353", protocol: model.UDP},
	}
	kept := []entry{
		{name: "endpoint is there", to: "203.0.113.5:30053", by: "10.244.1.1:5353", protocol: model.UDP},
		{name: "no route", to: "203.0.113.33:30053", by: "10.244.1.3:5353", protocol: model.UDP},
		{name: "a route to nowhere", to: "203.0.113.65:30053", by: "10.244.1.3:5353", protocol: model.UDP},
		{name: "IPv6, no route", to: "[2001:db8:6::5]:30053", by: "[fd00:244::3]:5353", protocol: model.UDP},
	}
	n.create(append(stale, kept...)...)
	commit(t, r, &plan.Change{
		Settings: &plan.Settings{NodePortAll4: true, NodePortAll6: true},
		Set: []*plan.Frontend{
			frontend("0.0.0.0:30053", "10.244.1.1:5353"),
			frontend("[::]:30053", "[fd00:244::1]:5353"),
		},
	})
	var want []string
	for _, e := range kept {
		want = append(want, e.seen())
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, n.entries()); diff != "" {
		t.Errorf("entries left (-want +got):\n%s", diff)
	}
}

func TestOnlyStaleEntriesAreDeleted(t *testing.T) {
	stale := []entry{
		{"endpoint left", "10.96.0.1:53", "10.244.1.3:5353", model.UDP, 0, 0},
		{"black-holed", "10.96.0.1:53", "10.96.0.1:53", model.UDP, 0, 0},
		{"endpoint left, in a zone", "10.96.0.1:53", "10.244.1.3:5353", model.UDP, 7, 0},
		{"endpoint of a node port left", "192.0.2.10:30053", "10.244.1.3:5353", model.UDP, 0, 0},
		{"node port, black-holed", "192.0.2.10:30053", "192.0.2.10:30053", model.UDP, 0, 0},
		{"last endpoint left", "10.96.0.2:53", "10.244.1.1:5353", model.UDP, 0, 0},
		{"frontend gone", "10.96.0.3:53", "10.244.1.1:5353", model.UDP, 0, 0},
		{"IPv6, endpoint left", "[fd00:96::1]:53", "[fd00:244::3]:5353", model.UDP, 0, 0},
		{"IPv6, black-holed", "[fd00:96::1]:53", "[fd00:96::1]:53", model.UDP, 0, 0},
		{"IPv6 node port, black-holed", "[2001:db8::10]:30053", "[2001:db8::10]:30053", model.UDP, 0, 0},
	}
	kept := []entry{
		{"endpoint is there", "10.96.0.1:53", "10.244.1.1:5353", model.UDP, 0, 0},
		{"untranslated in a zone", "10.96.0.1:53", "10.96.0.1:53", model.UDP, 7, 0},
		{"endpoint of a node port is there", "192.0.2.10:30053", "10.244.1.1:5353", model.UDP, 0, 0},
		{"frontend gone, never translated", "10.96.0.3:53", "10.96.0.3:53", model.UDP, 0, 0},
		{"TCP", "10.96.0.1:53", "10.244.1.3:5353", model.TCP, 0, 0},
		{"another port", "10.96.0.1:54", "10.244.1.3:5353", model.UDP, 0, 0},
		{"another address of the node", "192.0.2.11:30053", "10.244.1.3:5353", model.UDP, 0, 0},
		{"socket of the node", "192.0.2.10:30054", "192.0.2.10:30054", model.UDP, 0, 0},
		{"IPv6, endpoint is there", "[fd00:96::1]:53", "[fd00:244::1]:5353", model.UDP, 0, 0},
		{"IPv6 foreign", "[2001:db8:3::1]:53", "[2001:db8:3::1]:53", model.UDP, 0, 0},
	}
	n := newNamespace(t)
	r := n.reconciler(Options{})
	var last Pass // the last; commit waits for it
	r.OnPass = func(p Pass) { last = p; r.count(p) }
	commit(t, r, &plan.Change{Set: []*plan.Frontend{frontend("10.96.0.3:53", "10.244.1.1:5353")}})
	n.create(append(stale, kept...)...)

	commit(t, r, &plan.Change{
		Settings: &plan.Settings{NodePortIPs: []netip.Addr{addr("192.0.2.10"), addr("2001:db8::10")}},
		Set: []*plan.Frontend{
			frontend("10.96.0.1:53", "10.244.1.1:5353"),
			frontend("10.96.0.2:53"),
			frontend("0.0.0.0:30053", "10.244.1.1:5353"),
			frontend("[fd00:96::1]:53", "[fd00:244::1]:5353"),
			frontend("[::]:30053", "[fd00:244::1]:5353"),
		},
		Removed: []plan.Key{udp("10.96.0.3:53")},
	})
	var want []string
	for _, e := range kept {
		want = append(want, e.seen())
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, n.entries()); diff != "" {
		t.Errorf("entries left (-want +got):\n%s", diff)
	}
	if got := r.Stats().Deleted; got != uint64(len(stale)) {
		t.Errorf("deleted %d, want %d", got, len(stale))
	}
	if last.Deleted != len(stale) || last.DeletedIPv6 != 3 || last.Err != nil {
		t.Errorf("last pass is %+v, want %d deleted and 3 of them IPv6", last, len(stale))
	}
}

// TestOneSocketFindsNewEndpoint sends real packets through real
// rules: first to none, then to one endpoint, then to another.
func TestOneSocketFindsNewEndpoint(t *testing.T) {
	n := newNamespace(t)
	n.shell(`
ip link set lo up
ip addr add 10.244.1.1/32 dev lo
ip addr add 10.244.1.2/32 dev lo
ip route add 10.96.0.0/16 dev lo
nft add table ip nat
nft add chain ip nat output '{ type nat hook output priority -100; }'
nft add chain ip nat postrouting '{ type nat hook postrouting priority 100; }'
nft add rule ip nat postrouting ct state new counter # so that there is tracking`)
	var client *net.UDPConn
	n.do(func() (err error) {
		for _, endpoint := range []string{"10.244.1.1:5353", "10.244.1.2:5353"} {
			if err := echo(t, endpoint); err != nil {
				return err
			}
		}
		client, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(addrPort("10.96.0.1:53")))
		return err
	})
	defer client.Close()
	if by := ask(t, client, 100*time.Millisecond); by != "" {
		t.Fatalf("answered by %s, want nobody", by)
	}

	r := n.reconciler(Options{})
	for _, endpoint := range []string{"10.244.1.1:5353", "10.244.1.2:5353", "10.244.1.1:5353"} {
		n.shell("nft flush chain ip nat output\n" +
			"nft add rule ip nat output ip daddr 10.96.0.1 udp dport 53 dnat to " + endpoint)
		commit(t, r, &plan.Change{Set: []*plan.Frontend{frontend("10.96.0.1:53", endpoint)}})
		if by := ask(t, client, testkit.Scaled(testkit.Timeout)); by != endpoint {
			t.Errorf("answered by %q, want %s", by, endpoint)
		}
		commit(t, r, &plan.Change{Set: []*plan.Frontend{frontend("10.96.0.1:53", endpoint, "10.244.1.3:5353")}})
	}
	if got := r.Stats().Deleted; got != 3 {
		t.Errorf("%d entries were deleted, want 3: once each time the endpoint changed", got)
	}
}

// echo answers datagrams with its own name, until the test ends.
func echo(t *testing.T, at string) error {
	server, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addrPort(at)))
	if err != nil {
		return err
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort([]byte(at), from)
		}
	}()
	return nil
}

// ask sends a datagram and returns who answers, if anybody does.
func ask(t *testing.T, client *net.UDPConn, timeout time.Duration) string {
	t.Helper()
	if _, err := client.Write([]byte("who?")); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatal(err)
	}
	if err := client.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	size, err := client.Read(buf)
	if err != nil {
		return ""
	}
	return string(buf[:size])
}

// foreignEntries returns entries of no Service.
func foreignEntries(count int) []entry {
	entries := make([]entry, count)
	for i := range entries {
		e := entry{to: fmt.Sprintf("203.0.113.%d:%d", i%250, 1024+i/250), protocol: model.UDP}
		e.by = e.to
		if i%2 == 0 { // translated
			e.by = fmt.Sprintf("10.244.9.%d:%d", i%250, 1024+i/250)
		}
		entries[i] = e
	}
	return entries
}

// TestHugeTableInConstantMemory has a few stale entries
// among very many that are none of ours.
func TestHugeTableInConstantMemory(t *testing.T) {
	const foreign, stale = 200_000, 1000
	n := newNamespace(t)
	entries := foreignEntries(foreign)
	for range stale {
		entries = append(entries, entry{to: "10.96.0.1:53", by: "10.244.1.3:53", protocol: model.UDP})
	}
	n.create(entries...)

	x := node(frontend("10.96.0.1:53", "10.244.1.1:53"))
	sweep := func() (sweepResult, uint64) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		count, err := table{netns: n.FD()}.sweep(t.Context(), kinds{allUDP}, x.stale)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		return count, after.TotalAlloc - before.TotalAlloc
	}
	count, allocated := sweep()
	t.Logf("%+v with %d KB", count, allocated>>10)
	if count.seen != foreign+stale || count.deleted != stale {
		t.Errorf("first sweep: %+v, want %d seen and %d deleted", count, foreign+stale, stale)
	}
	if count.cost <= 0 {
		t.Errorf("first sweep took no processor time")
	}
	// All that was ever allocated, not only what was in use at one time.
	if allocated > 1<<20 {
		t.Errorf("%d bytes were allocated for %d entries", allocated, count.seen)
	}
	if count, _ = sweep(); count.seen != foreign || count.deleted != 0 {
		t.Errorf("second sweep: %+v", count)
	}
}

func TestKernelFiltersByProtocol(t *testing.T) {
	n := newNamespace(t)
	n.create(entry{to: "10.96.0.1:53", by: "10.244.1.1:53", protocol: model.UDP},
		entry{to: "10.96.0.1:53", by: "10.244.1.1:53", protocol: model.TCP})
	count, err := table{netns: n.FD()}.sweep(t.Context(), kinds{allUDP}, func(*flow) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if count.seen != 1 {
		t.Errorf("saw %d entries, want 1", count.seen)
	}
}

func TestKernelWithoutFilter(t *testing.T) {
	n := newNamespace(t)
	n.create(entry{to: "10.96.0.1:53", by: "10.244.1.1:53", protocol: model.UDP},
		entry{to: "10.96.0.1:53", by: "10.244.1.1:53", protocol: model.TCP})
	conn, err := nfnetlink.Dial(n.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var asked []model.Protocol
	s := sweeper{
		ctx: t.Context(), conn: conn,
		filter: func(kind) []byte {
			unknown := nfnetlink.AppendAttr(nil, ctnetlink.FilterOrigFlags, []byte{0xff, 0xff, 0xff, 0xff})
			return nfnetlink.AppendAttr(nil, nfnetlink.Nested|ctnetlink.Filter, unknown)
		},
		stale: func(f *flow) bool { asked = append(asked, f.Protocol); return false },
	}
	if err := s.sweepAll(kinds{allUDP}); err != nil {
		t.Fatal(err)
	}
	if s.seen != 2 {
		t.Errorf("saw %d entries, want both", s.seen)
	}
	if diff := cmp.Diff([]model.Protocol{model.UDP}, asked); diff != "" {
		t.Errorf("decided about (-want +got):\n%s", diff)
	}
}

func TestSweepEndsWhenItIsCancelled(t *testing.T) {
	n := newNamespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := table{netns: n.FD()}.sweep(ctx, kinds{allUDP}, func(*flow) bool { return false })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func BenchmarkSweep(b *testing.B) {
	const entries = 100_000
	n := newNamespace(b)
	n.create(foreignEntries(entries)...)
	x := node(frontend("10.96.0.1:53", "10.244.1.1:53"))
	b.ReportAllocs()
	for b.Loop() {
		count, err := table{netns: n.FD()}.sweep(b.Context(), kinds{allUDP}, x.stale)
		if err != nil || count.seen != entries || count.deleted != 0 {
			b.Fatalf("%+v %v", count, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*entries), "ns/entry")
}
