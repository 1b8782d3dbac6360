package loopback

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// wantListening waits until so many ports of each family are listened on.
func (w *fixture) wantListening(four, six int) {
	w.t.Helper()
	want := map[model.Family]int{model.IPv4: four, model.IPv6: six}
	testkit.Eventually(w.t, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !maps.Equal(want, w.listening) {
			return fmt.Errorf("listening on %v, want %v", w.listening, want)
		}
		return nil
	})
}

func TestNodePortsOfEachFamily(t *testing.T) {
	for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
		t.Run(protocol.String(), func(t *testing.T) {
			w, port := newFixture(t), freePort(t)
			w.set(
				nodePort(web, model.IPv4, port, protocol, endpoint(t, "four", protocol, testkit.Loopback(9))),
				nodePort(web, model.IPv6, port, protocol, endpoint(t, "six", protocol, local6)),
			)
			w.serveOn(here, there, local6)
			w.want(protocol, here, port, "four")
			w.want(protocol, there, port, "four")
			w.want(protocol, local6, port, "six")
			w.wantListening(2, 1)
		})
	}
}

func TestEndpointsAreFollowed(t *testing.T) {
	for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
		t.Run(protocol.String(), func(t *testing.T) {
			w, port := newFixture(t), freePort(t)
			one, two := endpoint(t, "one", protocol, testkit.Loopback(8)), endpoint(t, "two", protocol, testkit.Loopback(9))
			w.serveOn(here)
			w.set(nodePort(web, model.IPv4, port, protocol))
			w.want(protocol, here, port, refused)
			w.set(nodePort(web, model.IPv4, port, protocol, one))
			w.want(protocol, here, port, "one")
			w.set(nodePort(web, model.IPv4, port, protocol, two))
			w.want(protocol, here, port, "two")
			w.set(nodePort(web, model.IPv4, port, protocol))
			w.want(protocol, here, port, refused)
			w.wantListening(0, 0)
			w.set(nodePort(web, model.IPv4, port, protocol, one))
			w.want(protocol, here, port, "one")
			w.remove(nodePort(web, model.IPv4, port, protocol).Key)
			w.want(protocol, here, port, refused)
			w.wantListening(0, 0)
		})
	}
}

func TestAddressesAreFollowed(t *testing.T) {
	w, port := newFixture(t), freePort(t)
	one := endpoint(t, "one", model.TCP, testkit.Loopback(9))
	w.set(nodePort(web, model.IPv4, port, model.TCP, one))
	w.want(model.TCP, here, port, refused)
	w.serveOn(here)
	w.want(model.TCP, here, port, "one")
	w.serveOn(there)
	w.want(model.TCP, there, port, "one")
	w.want(model.TCP, here, port, refused)
	w.serveOn()
	w.want(model.TCP, there, port, refused)
	w.wantListening(0, 0)
}

func TestNodeUsesItsRoute(t *testing.T) {
	w, port := newFixture(t), freePort(t)
	f := nodePort(web, model.IPv4, port, model.TCP, endpoint(t, "anywhere", model.TCP, testkit.Loopback(9)))
	f.Outside = &plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}} // policy Local, and no endpoint here
	w.serveOn(here)
	w.set(f)
	w.want(model.TCP, here, port, "anywhere")
}

func TestOnlyNodePortsAreServed(t *testing.T) {
	w, port := newFixture(t), freePort(t)
	one := endpoint(t, "one", model.TCP, testkit.Loopback(9))
	other := nodePort(mail, model.IPv4, port+1, model.TCP, one)
	other.Kind, other.Key.Addr = plan.ClusterIP, netip.MustParseAddr("10.96.0.1")
	w.serveOn(here)
	w.set(other, nodePort(web, model.IPv4, port, model.TCP, one))
	w.want(model.TCP, here, port, "one")
	w.wantListening(1, 0)
}

func TestSCTPIsLoggedOnce(t *testing.T) {
	w, port := newFixture(t), freePort(t)
	one := endpoint(t, "one", model.TCP, testkit.Loopback(9))
	w.serveOn(here)
	w.set(nodePort(web, model.IPv4, port+1, model.SCTP, one), nodePort(web, model.IPv4, port+2, model.SCTP, one),
		nodePort(web, model.IPv4, port, model.TCP, one))
	w.want(model.TCP, here, port, "one")
	if lines := w.log.With("SCTP"); len(lines) != 1 {
		t.Errorf("it is logged %d times, want once: %v", len(lines), lines)
	}
}

func TestPortInUseIsReportedOnceAndRetried(t *testing.T) {
	w, port := newFixture(t), freePort(t)
	other, err := net.Listen("tcp", netip.AddrPortFrom(here, port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	one := endpoint(t, "one", model.TCP, testkit.Loopback(9))
	w.serveOn(here, there)
	w.set(nodePort(web, model.IPv4, port, model.TCP, one), nodePort(mail, model.IPv4, port+1, model.TCP, one))
	w.want(model.TCP, here, port+1, "one")
	w.want(model.TCP, there, port, "one")
	testkit.Eventually(t, func() error { // several tries
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.failures[model.IPv4] < 3 {
			return errors.New("it is not tried again")
		}
		return nil
	})
	if lines := w.log.With("Cannot listen"); len(lines) != 1 || !strings.Contains(lines[0], `"service"="default/web"`) ||
		!strings.Contains(lines[0], "end the program that uses the port") {
		t.Errorf("want one line with the Service and a remedy, got %v", lines)
	}
	w.locked(func() {
		if diff := cmp.Diff([]model.Name{web}, w.failed); diff != "" {
			t.Errorf("Services reported (-want +got):\n%s", diff)
		}
	})
	other.Close()
	w.want(model.TCP, here, port, "one")
	w.wantListening(4, 0)
}

func TestRefusedConnectionsAreCounted(t *testing.T) {
	w, port := newFixture(t), freePort(t)
	w.serveOn(here)
	w.set(nodePort(web, model.IPv4, port, model.TCP, netip.AddrPortFrom(testkit.Loopback(9), freePort(t))))
	w.wantListening(1, 0)
	ask(model.TCP, netip.AddrPortFrom(here, port))
	testkit.Eventually(t, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if diff := cmp.Diff(map[string]int{"IPv4 TCP": 1}, w.refused); diff != "" {
			return fmt.Errorf("refusals (-want +got):\n%s", diff)
		}
		return nil
	})
	if n := w.accepted.Load(); n != 0 {
		t.Errorf("%d connections were accepted", n)
	}
}

func TestEstablishedOutliveTheService(t *testing.T) {
	w, port := newFixture(t), freePort(t)
	f := nodePort(web, model.IPv4, port, model.TCP, endpoint(t, "one", model.TCP, testkit.Loopback(9)))
	w.serveOn(here)
	w.set(f)
	w.want(model.TCP, here, port, "one")
	conn, err := net.Dial("tcp", netip.AddrPortFrom(here, port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := converse(conn); got != "one" {
		t.Fatalf("answered %q", got)
	}
	w.remove(f.Key)
	w.want(model.TCP, here, port, refused)
	if got := converse(conn); got != "one" {
		t.Errorf("the Service is gone, and with it the connection: %s", got)
	}
	w.stop()
	if got := converse(conn); got == "one" {
		t.Error("the connection outlives the proxy")
	}
	if n := w.accepted.Load(); n < 2 {
		t.Errorf("%d connections were counted, want at least 2", n)
	}
}

func TestOtherChangesAreIgnored(t *testing.T) {
	key := plan.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}
	nodePortKey := nodePort(web, model.IPv4, 30080, model.TCP).Key
	on := &plan.Change{Settings: &plan.Settings{LoopbackIPs: []netip.Addr{here}}}
	off := &plan.Change{Settings: &plan.Settings{}}
	tests := []struct {
		name   string
		before *plan.Change
		in     *plan.Change
		want   bool
	}{
		{"another frontend", on, &plan.Change{Set: []*plan.Frontend{{Key: key}}, Removed: []plan.Key{key}}, false},
		{"a node port", on, &plan.Change{Set: []*plan.Frontend{{Key: nodePortKey}}}, true},
		{"a node port that is gone", on, &plan.Change{Removed: []plan.Key{nodePortKey}}, true},
		{"a node port while loopback is not served", off, &plan.Change{Removed: []plan.Key{nodePortKey}}, false},
		{"settings", off, on, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := New(unheard)
			n.Committed(&engine.Commit{Change: tt.before})
			<-n.changed.Signal
			n.follow(t.Context(), desires{&plan.Desired{}})
			n.Committed(&engine.Commit{Change: tt.in})
			if got := len(n.changed.Signal) > 0; got != tt.want {
				t.Errorf("woken: %v, want %v", got, tt.want)
			}
		})
	}
}

// desires is an engine that stands still.
type desires struct{ *plan.Desired }

func (d desires) Inspect(read func(engine.View)) { read(engine.View{Desired: d.Desired}) }

func TestOnlyChangedPortsAreUpdated(t *testing.T) {
	w, port := newFixture(t), freePort(t)
	one := endpoint(t, "one", model.TCP, testkit.Loopback(9))
	w.serveOn(here)
	var keys []uint16
	for i := range uint16(5) {
		w.set(nodePort(web, model.IPv4, port+i, model.TCP, one))
		keys = append(keys, port+i)
	}
	for _, p := range slices.Backward(keys) {
		w.want(model.TCP, here, p, "one")
	}
	// A frontend that changed without a commit that says so is not noticed.
	w.locked(func() { delete(w.desired.Frontends, nodePort(web, model.IPv4, port, model.TCP).Key) })
	w.remove(nodePort(web, model.IPv4, port+1, model.TCP).Key)
	w.want(model.TCP, here, port+1, refused)
	w.want(model.TCP, here, port, "one")
}

// A node port whose source ranges do not admit the node is not served.
func TestSourceRangesShutOutTheNode(t *testing.T) {
	w := newFixture(t)
	w.serveOn(here)
	shut := nodePort(web, model.IPv4, freePort(t), model.TCP, endpoint(t, "a", model.TCP, there))
	shut.Filtered = true
	open := *shut
	open.Sources = []netip.Prefix{netip.PrefixFrom(here, 32)}
	w.set(&open)
	w.want(model.TCP, here, shut.Key.Port, "a")
	w.set(shut)
	w.want(model.TCP, here, shut.Key.Port, refused)
}

// Under policy Local endpoints on the node count, if the settings say so.
func TestTrafficPolicyIsFollowed(t *testing.T) {
	w := newFixture(t)
	w.serveOn(here)
	f := nodePort(web, model.IPv4, freePort(t), model.TCP, endpoint(t, "elsewhere", model.TCP, there))
	f.Outside = &plan.Route{Local: true, Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}
	w.set(f)
	w.want(model.TCP, here, f.Key.Port, "elsewhere")
	w.locked(func() { w.desired.Settings.LoopbackLocal = true })
	w.ports.Committed(&engine.Commit{Change: &plan.Change{Settings: &plan.Settings{LoopbackIPs: []netip.Addr{here}, LoopbackLocal: true}}})
	w.want(model.TCP, here, f.Key.Port, refused)
}
