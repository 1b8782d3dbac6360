package host

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/model"
	"sluice/internal/testkit"
)

// recorder is a Sink that records its calls.
type recorder struct {
	reports chan []netip.Addr
	synced  chan struct{}
}

func newRecorder() *recorder {
	return &recorder{reports: make(chan []netip.Addr, 100), synced: make(chan struct{}, 100)}
}

func (r *recorder) Update(events ...model.Event) {
	for _, e := range events {
		r.reports <- e.(model.SetHostIPs).IPs
	}
}

func (r *recorder) Synced() { r.synced <- struct{}{} }

// await reads reports until one is as wanted. What comes before it may show
// less than all of a test's changes, as those are not atomic.
func (r *recorder) await(t *testing.T, want ...string) {
	t.Helper()
	wanted := make([]netip.Addr, len(want))
	for i, text := range want {
		wanted[i] = netip.MustParseAddr(text)
	}
	var last []netip.Addr
	for {
		last = testkit.Receive(t, r.reports, fmt.Sprintf("a report of %v, after one of %v", wanted, last))
		if slices.Equal(wanted, last) {
			return
		}
	}
}

// start runs a Source in the namespace until the test ends.
func start(t *testing.T, in *netnstest.Namespace) *recorder {
	t.Helper()
	return run(t, in, New(Options{Logger: testr.New(t), Clock: clock.RealClock{}}))
}

func run(t *testing.T, in *netnstest.Namespace, source *Source) *recorder {
	t.Helper()
	r := newRecorder()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- in.Do(func() error { return source.Run(ctx, r) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("source ended with %v", err)
		}
	})
	return r
}

func addLink(t *testing.T) netlink.Link {
	t.Helper()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "one"}, PeerName: "other"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatalf("add a link: %v", err)
	}
	return veth
}

func change(t *testing.T, do func(netlink.Link, *netlink.Addr) error, link netlink.Link, cidr string) {
	t.Helper()
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		t.Fatal(err)
	}
	if err := do(link, addr); err != nil {
		t.Fatalf("change address %s: %v", cidr, err)
	}
}

func TestAddressesAreFollowed(t *testing.T) {
	ns := netnstest.Enter(t)
	link := addLink(t)
	change(t, netlink.AddrAdd, link, "192.0.2.7/32")

	r := start(t, ns)
	r.await(t, "192.0.2.7")
	testkit.Receive(t, r.synced, "being in sync")

	change(t, netlink.AddrAdd, link, "192.0.2.3/32")
	change(t, netlink.AddrAdd, link, "2001:db8::1/64")
	r.await(t, "192.0.2.3", "192.0.2.7", "2001:db8::1")

	change(t, netlink.AddrDel, link, "192.0.2.7/32")
	r.await(t, "192.0.2.3", "2001:db8::1")

	if err := netlink.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	r.await(t)
	if n := len(r.synced); n != 0 {
		t.Errorf("source said %d times more that it is in sync", n)
	}
}

func TestDuplicateAddressIsReportedOnce(t *testing.T) {
	ns := netnstest.Enter(t)
	link := addLink(t)
	other, err := netlink.LinkByName("other")
	if err != nil {
		t.Fatal(err)
	}
	change(t, netlink.AddrAdd, link, "192.0.2.7/32")
	change(t, netlink.AddrAdd, other, "192.0.2.7/32")
	start(t, ns).await(t, "192.0.2.7")
}

func TestIPv6LinkLocalIsLeftOut(t *testing.T) {
	ns := netnstest.Enter(t)
	link := addLink(t)
	change(t, netlink.AddrAdd, link, "fe80::1/64")
	change(t, netlink.AddrAdd, link, "169.254.0.1/32")
	start(t, ns).await(t, "169.254.0.1")
}

// What upstream's ipvs mode left is not the machine's. Any kind of link will do here.
func TestAddressesOfServicesAreLeftOut(t *testing.T) {
	ns := netnstest.New(t)
	for _, name := range []string{"eth0", serviceLink} {
		ns.Run(t, "", "ip", "link", "add", name, "type", "bridge")
	}
	ns.Run(t, "", "ip", "addr", "add", "10.96.0.10/32", "dev", serviceLink)
	ns.Run(t, "", "ip", "addr", "add", "192.0.2.1/32", "dev", "eth0")
	start(t, ns).await(t, "192.0.2.1")
}

func TestLoopbackIsReported(t *testing.T) {
	ns := netnstest.Enter(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	start(t, ns).await(t, "127.0.0.1", "::1")
}

func TestLostSubscriptionIsRestored(t *testing.T) {
	t.Parallel()
	ns := netnstest.Enter(t)
	link := addLink(t)
	source := New(Options{Logger: testr.New(t), Clock: clock.RealClock{}})
	subscribed := make(chan int, 10)
	subscriptions := 0
	source.subscribe = func(changes chan<- netlink.AddrUpdate, done <-chan struct{}) error {
		subscriptions++
		subscribed <- subscriptions
		switch subscriptions {
		case 1:
			return unix.ENOBUFS
		case 2:
			close(changes)
			return nil
		}
		return netlink.AddrSubscribe(changes, done)
	}
	r := run(t, ns, source)
	r.await(t)
	for n := range subscribed {
		if n == 3 {
			break
		}
	}
	change(t, netlink.AddrAdd, link, "192.0.2.7/32")
	r.await(t, "192.0.2.7")
	if n := len(r.synced); n != 1 {
		t.Errorf("source said %d times that it is in sync, want once", n)
	}
}

// Some sandboxes have no notifications.
func TestAddressesWithoutNotifications(t *testing.T) {
	t.Parallel()
	ns := netnstest.Enter(t)
	link := addLink(t)
	change(t, netlink.AddrAdd, link, "192.0.2.7/32")
	var log testkit.Journal
	source := New(Options{Logger: log.Logger(), Clock: clock.RealClock{}})
	source.subscribe = func(chan<- netlink.AddrUpdate, <-chan struct{}) error { return unix.EOPNOTSUPP }
	r := run(t, ns, source)
	r.await(t, "192.0.2.7")
	change(t, netlink.AddrAdd, link, "192.0.2.3/32")
	r.await(t, "192.0.2.3", "192.0.2.7")
	change(t, netlink.AddrDel, link, "192.0.2.7/32")
	r.await(t, "192.0.2.3")
	if lines := log.With("Cannot follow"); len(lines) != 1 {
		t.Errorf("it is logged %d times: %v", len(lines), lines)
	}
}
