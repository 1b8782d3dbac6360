package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/base/socketerror"
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/relay"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

var (
	here, there = testkit.Loopback(21), testkit.Loopback(22)
	podIP       = testkit.Loopback(23)
	service     = model.Name{Namespace: "default", Name: "web"}
)

// freePort returns a port that is free at all loopback addresses.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// endpoint starts a server that answers each connection with a name.
func endpoint(t *testing.T, name string) plan.Endpoint {
	t.Helper()
	l, err := net.Listen("tcp4", netip.AddrPortFrom(testkit.Loopback(24), 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, name)
			go func() {
				_, _ = bufio.NewReader(conn).ReadString('\n') // until the client is gone
				conn.Close()
			}()
		}
	}()
	return plan.Endpoint{AddrPort: l.Addr().(*net.TCPAddr).AddrPort()}
}

func frontend(port uint16, endpoints ...plan.Endpoint) *plan.Frontend {
	return &plan.Frontend{
		Key: plan.NodePortKey(model.IPv4, port, model.TCP), Kind: plan.NodePort, Service: service,
		Route: plan.Route{Endpoints: endpoints}, ProxyConnects: true,
	}
}

func desired(frontends ...*plan.Frontend) *plan.Desired {
	d := &plan.Desired{
		Settings:  plan.Settings{NodePortIPs: []netip.Addr{here, there}, HostIPs: []netip.Addr{here}, NodePortsOnly: true},
		Frontends: map[plan.Key]*plan.Frontend{},
	}
	for _, f := range frontends {
		d.Frontends[f.Key] = f
	}
	return d
}

const refused = "refused"

// ask connects from an address, and returns the name of who answers.
func ask(from, to netip.Addr, port uint16) string {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}, Timeout: testkit.Scaled(testkit.Timeout)}
	conn, err := d.Dial("tcp4", netip.AddrPortFrom(to, port).String())
	if errors.Is(err, socketerror.ConnectionRefused) {
		return refused
	}
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if errors.Is(err, socketerror.ConnectionReset) {
		return refused
	}
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

func want(t *testing.T, from, to netip.Addr, port uint16, name string) {
	t.Helper()
	if got := ask(from, to, port); got != name {
		t.Errorf("%v to %v: %s, want %s", from, to, got, name)
	}
}

func open(t *testing.T) *Dataplane {
	t.Helper()
	d := New(t.Context(), Options{Logger: logr.Discard(), Budget: relay.NewBudget(4000)})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// wantDone expects a result without errors.
func wantDone(t *testing.T, r dataplane.Result) {
	t.Helper()
	if r.Err != nil || len(r.Failed) > 0 {
		t.Fatalf("failed: %v, %v", r.Err, r.Failed)
	}
}

func TestReconcileFirst(t *testing.T) {
	if r := open(t).Apply(t.Context(), &plan.Change{}); !errors.Is(r.Err, dataplane.ErrUnknown) {
		t.Errorf("applied: %v", r.Err)
	}
}

func TestChanges(t *testing.T) {
	d, a, b := open(t), freePort(t), freePort(t)
	one, two := endpoint(t, "one"), endpoint(t, "two")
	wantDone(t, d.Reconcile(t.Context(), desired(frontend(a, one))))
	want(t, podIP, here, a, "one")
	want(t, podIP, there, a, "one")
	want(t, podIP, here, b, refused)

	wantDone(t, d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{frontend(a, two), frontend(b, one)}}))
	want(t, podIP, here, a, "two")
	want(t, podIP, there, b, "one")

	settings := desired().Settings
	settings.NodePortIPs = []netip.Addr{there}
	wantDone(t, d.Apply(t.Context(), &plan.Change{Settings: &settings}))
	want(t, podIP, here, a, refused)
	want(t, podIP, there, a, "two")

	wantDone(t, d.Apply(t.Context(), &plan.Change{Removed: []plan.Key{frontend(b).Key}, Set: []*plan.Frontend{frontend(a)}}))
	want(t, podIP, there, a, refused)
	want(t, podIP, there, b, refused)

	wantDone(t, d.Reconcile(t.Context(), desired(frontend(b, two))))
	want(t, podIP, here, a, refused)
	want(t, podIP, here, b, "two")
}

// Under policy Local the client's address decides.
func TestClientsOutside(t *testing.T) {
	d, port := open(t), freePort(t)
	f := frontend(port, endpoint(t, "anywhere"))
	f.Outside = &plan.Route{Endpoints: []plan.Endpoint{endpoint(t, "here")}, Local: true}
	all := desired(f)
	pod := testkit.Loopback(25)
	all.Settings.IPv4.Sources = []netip.Prefix{netip.PrefixFrom(pod, 32)}
	wantDone(t, d.Reconcile(t.Context(), all))
	// Clients of this test are all on loopback.
	for client, want := range map[netip.Addr]bool{pod: false, here: false, netip.MustParseAddr("198.51.100.1"): true} {
		if got := d.outside(client); got != want {
			t.Errorf("%v is outside: %v, want %v", client, got, want)
		}
	}
	want(t, pod, here, port, "anywhere")
	want(t, here, here, port, "anywhere")
}

func TestPortInUse(t *testing.T) {
	d, a, b := open(t), freePort(t), freePort(t)
	taken, err := net.Listen("tcp4", netip.AddrPortFrom(here, a).String())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	one := endpoint(t, "one")
	r := d.Reconcile(t.Context(), desired(frontend(a, one), frontend(b, one)))
	failed := r.Failed[frontend(a).Key]
	if r.Err != nil || len(r.Failed) != 1 || !errors.Is(failed, socketerror.AddressInUse) || !strings.Contains(failed.Error(), "(end the program") {
		t.Fatalf("result %v, %v: want that %d is in use, and a remedy", r.Err, r.Failed, a)
	}
	want(t, podIP, there, a, "one")
	want(t, podIP, here, b, "one")
	describe := func() dataplane.Description {
		t.Helper()
		k, err := d.Describe(t.Context(), dataplane.Destination{Key: frontend(a).Key, IP: here}, netip.Addr{})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if k := describe(); !k.Present || len(k.Objects) != 2 || k.Objects[0].What != "is not listened on" || k.Objects[1].What != "is listened on" {
		t.Errorf("described as %+v", k)
	}
	taken.Close()
	wantDone(t, d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{frontend(a, one)}}))
	want(t, podIP, here, a, "one")
	if k := describe(); k.Objects[0].What != "is listened on" || k.Connections != 2 || k.RouteSize != 1 {
		t.Errorf("described as %+v", k)
	}
}

// Counters do not decrease when ports go.
func TestCounters(t *testing.T) {
	d, port := open(t), freePort(t)
	wantDone(t, d.Reconcile(t.Context(), desired(frontend(port, endpoint(t, "one")))))
	want(t, podIP, here, port, "one")
	read := func() map[string]float64 {
		out := map[string]float64{}
		d.Count(t.Context(), []model.Family{model.IPv4}, func(metric string, value float64, labels ...string) {
			out[metric+" "+strings.Join(labels, " ")] = value
		})
		return out
	}
	if got := read(); got["sluice_sandbox_listening IPv4"] != 2 || got["sluice_sandbox_connections_total IPv4 served"] != 1 {
		t.Errorf("counted %v", got)
	}
	var traffic dataplane.Traffic
	if _, err := d.Traffic(t.Context(), func(_ plan.Key, n dataplane.Traffic) { traffic = traffic.Plus(n) }); err != nil || traffic.Connections != 1 || traffic.Attempts != 1 {
		t.Errorf("traffic %+v, %v", traffic, err)
	}
	wantDone(t, d.Apply(t.Context(), &plan.Change{Removed: []plan.Key{frontend(port).Key}}))
	if got := read(); got["sluice_sandbox_listening IPv4"] != 0 || got["sluice_sandbox_connections_total IPv4 served"] != 1 {
		t.Errorf("counted %v without the port", got)
	}
}

// Established connections outlive the Service, but not the proxy.
func TestEstablished(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	d, port := New(ctx, Options{Logger: logr.Discard(), Budget: relay.NewBudget(4000)}), freePort(t)
	wantDone(t, d.Reconcile(t.Context(), desired(frontend(port, endpoint(t, "one")))))
	conn, err := net.Dial("tcp4", netip.AddrPortFrom(here, port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "one\n" {
		t.Fatalf("%q, %v", line, err)
	}
	wantDone(t, d.Apply(t.Context(), &plan.Change{Removed: []plan.Key{frontend(port).Key}}))
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	var timeout net.Error
	if _, err := conn.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("the Service is gone, and with it the connection: %v", err)
	}
	end()
	_ = conn.SetReadDeadline(testkit.Deadline(testkit.Timeout))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, socketerror.ConnectionReset) {
		t.Errorf("the proxy ended: %v, want a reset", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
