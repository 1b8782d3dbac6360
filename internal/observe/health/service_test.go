package health

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/base/socketerror"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

func TestAnswersCountTheirFamily(t *testing.T) {
	w, ports := newFixture(t, nil), freePorts(t, 2)
	w.set([]netip.Addr{here, there, local6}, check(web, ports[0], 2, 1), check(mail, ports[1], 0, 3))
	w.wantReply(here, ports[0], ok(web, "2"))
	w.wantReply(there, ports[0], ok(web, "2"))
	w.wantReply(local6, ports[0], ok(web, "1"))
	w.wantReply(here, ports[1], none(mail, "0"))
	w.wantReply(local6, ports[1], ok(mail, "3"))
}

func TestAnswersFollowEndpointsAndHealth(t *testing.T) {
	var sick atomic.Bool
	w := newFixture(t, func(w *fixture) { w.healthy = func() bool { return !sick.Load() } })
	port := freePorts(t, 1)[0]
	for _, weight := range []int{1, 0, 3} {
		w.set([]netip.Addr{here}, check(web, port, weight, 0))
		want := ok(web, fmt.Sprint(weight))
		if weight == 0 {
			want = none(web, "0")
		}
		w.wantReply(here, port, want)
	}
	sick.Store(true)
	w.wantReply(here, port, none(web, "3"))
	sick.Store(false)
	w.wantReply(here, port, ok(web, "3"))
}

func TestAddressChangesKeepOtherListeners(t *testing.T) {
	var mu sync.Mutex
	opened := map[netip.Addr]int{}
	w := newFixture(t, func(w *fixture) {
		w.services.listen = func(at netip.AddrPort) (net.Listener, error) {
			mu.Lock()
			defer mu.Unlock()
			opened[at.Addr()]++
			return listenOn(at)
		}
	})
	port := freePorts(t, 1)[0]
	w.set([]netip.Addr{here}, check(web, port, 1, 1))
	w.wantReply(here, port, ok(web, "1"))
	w.wantReply(there, port, refused)
	w.set([]netip.Addr{here, there, local6}, check(web, port, 1, 1))
	w.wantReply(there, port, ok(web, "1"))
	w.wantReply(local6, port, ok(web, "1"))
	w.set([]netip.Addr{there}, check(web, port, 1, 1))
	w.wantReply(here, port, refused)
	w.wantReply(local6, port, refused)
	w.wantReply(there, port, ok(web, "1"))
	w.set(nil, check(web, port, 1, 1))
	w.wantReply(there, port, refused)
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[netip.Addr]int{here: 1, there: 1, local6: 1}, opened, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("times an address was opened (-want +got):\n%s", diff)
	}
}

// Where node ports answer on every local address, so do health check ports, and on
// loopback addresses with them.
func TestAllAddressesAreListenedOn(t *testing.T) {
	w, ports := newFixture(t, nil), freePorts(t, 2)
	four := check(mail, ports[1], 2, 0)
	four.IPv6 = false
	w.set([]netip.Addr{here}, check(web, ports[0], 1, 2), four)
	w.wantReply(here, ports[0], ok(web, "1"))
	w.wantReply(there, ports[0], refused)
	w.configure(func(s *plan.Settings) { s.NodePortAll4, s.NodePortAll6 = true, true })
	for _, ip := range []netip.Addr{here, there, netip.MustParseAddr("127.0.0.1")} {
		w.wantReply(ip, ports[0], ok(web, "1"))
		w.wantReply(ip, ports[1], ok(mail, "2"))
	}
	w.wantReply(local6, ports[0], ok(web, "2"))
	w.wantReply(local6, ports[1], refused) // not a family of the Service
	w.configure(func(s *plan.Settings) {
		s.NodePortAll4, s.NodePortAll6, s.LoopbackIPs = false, false, []netip.Addr{there}
	})
	w.wantReply(local6, ports[0], refused)
	w.wantReply(here, ports[0], ok(web, "1"))
	w.wantReply(there, ports[0], ok(web, "1")) // as a loopback address that node ports answer on
}

func TestServicesAreFollowed(t *testing.T) {
	w, ports := newFixture(t, nil), freePorts(t, 3)
	ips := []netip.Addr{here}
	w.set(ips, check(web, ports[0], 1, 0), check(mail, ports[1], 2, 0))
	w.wantReply(here, ports[0], ok(web, "1"))
	w.wantReply(here, ports[1], ok(mail, "2"))

	w.set(ips, check(web, ports[1], 1, 0), check(mail, ports[0], 2, 0))
	w.wantReply(here, ports[0], ok(mail, "2"))
	w.wantReply(here, ports[1], ok(web, "1"))

	w.set(ips, check(web, ports[2], 1, 0))
	w.wantReply(here, ports[2], ok(web, "1"))
	w.wantReply(here, ports[0], refused)
	w.wantReply(here, ports[1], refused)
	if lines := w.log.With("Cannot listen"); len(lines) > 0 {
		t.Errorf("ports were in their own way: %q", lines)
	}
}

func TestPortInUseIsReportedOnceAndRetried(t *testing.T) {
	var mu sync.Mutex
	var reported []model.Name
	var tries atomic.Int64
	w, ports := newFixture(t, func(w *fixture) {
		w.services.listen = func(at netip.AddrPort) (net.Listener, error) {
			socket, err := listenOn(at)
			if err != nil {
				tries.Add(1)
			}
			return socket, err
		}
		w.services.Failed = func(service model.Name, err error) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, service)
		}
	}), freePorts(t, 2)
	taken, err := net.Listen("tcp", netip.AddrPortFrom(here, ports[0]).String())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	w.set([]netip.Addr{here, there}, check(web, ports[0], 1, 0), check(mail, ports[1], 2, 0))
	w.wantReply(there, ports[0], ok(web, "1"))
	w.wantReply(here, ports[1], ok(mail, "2"))
	testkit.Until(t, func() bool { return tries.Load() >= 3 }) // all but the first must not be reported

	lines := w.log.With("Cannot listen")
	if len(lines) != 1 {
		t.Fatalf("%d reports, want one: %q", len(lines), lines)
	}
	for _, want := range []string{`"service"="default/web"`, `"address"="` + netip.AddrPortFrom(here, ports[0]).String(), socketerror.AddressInUse.Error(), "another healthCheckNodePort"} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("report %q lacks %q", lines[0], want)
		}
	}
	mu.Lock()
	if !slices.Equal(reported, []model.Name{web}) {
		t.Errorf("reported failures of %v, want %v", reported, web)
	}
	mu.Unlock()
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	w.wantReply(here, ports[0], ok(web, "1"))
	if lines := w.log.With("Listening on"); len(lines) != 1 {
		t.Errorf("recovery is logged as %q, want one line", lines)
	}
}

func TestConnectionsEndWithTheService(t *testing.T) {
	w, port := newFixture(t, nil), freePorts(t, 1)[0]
	w.set([]netip.Addr{here}, check(web, port, 1, 0))
	w.wantReply(here, port, ok(web, "1"))
	conn, err := net.Dial("tcp", netip.AddrPortFrom(here, port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()

	w.set([]netip.Addr{here})
	w.wantReply(here, port, refused)
	if err := conn.SetReadDeadline(testkit.Deadline(testkit.Timeout)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := in.Peek(1); errors.As(err, &timeout) && timeout.Timeout() || err == nil {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestRequestInProgressIsCompleted(t *testing.T) {
	var slow atomic.Bool
	asked, finish := make(chan struct{}), make(chan struct{})
	w := newFixture(t, func(w *fixture) {
		w.services.grace = testkit.Timeout
		w.healthy = func() bool {
			if slow.Load() {
				close(asked)
				<-finish
			}
			return true
		}
	})
	port := freePorts(t, 1)[0]
	w.set([]netip.Addr{here}, check(web, port, 1, 0))
	w.wantReply(here, port, ok(web, "1"))

	slow.Store(true)
	replies := make(chan reply, 1)
	go func() { replies <- ask(netip.AddrPortFrom(here, port)) }()
	<-asked
	slow.Store(false)
	w.set([]netip.Addr{here})
	w.wantReply(here, port, refused)
	close(finish)
	if got := <-replies; got != ok(web, "1") {
		t.Errorf("answer %+v", got)
	}
}

// failingListener is a socket that accepts nothing.
type failingListener struct{ net.Listener }

func (failingListener) Accept() (net.Conn, error) { return nil, errors.New("no more") }

func TestSocketThatBreaksIsReplaced(t *testing.T) {
	var once sync.Once
	w := newFixture(t, func(w *fixture) {
		w.services.listen = func(at netip.AddrPort) (socket net.Listener, err error) {
			socket, err = listenOn(at)
			once.Do(func() { socket = failingListener{socket} })
			return socket, err
		}
	})
	port := freePorts(t, 1)[0]
	w.set([]netip.Addr{here}, check(web, port, 1, 0))
	w.wantReply(here, port, ok(web, "1"))
	if lines := w.log.With("no more"); len(lines) != 1 {
		t.Errorf("logged %q, want one line", lines)
	}
}

func TestTheNextProxyListensAgain(t *testing.T) {
	first, port := newFixture(t, nil), freePorts(t, 1)[0]
	ips := []netip.Addr{here, local6}
	first.set(ips, check(web, port, 1, 1))
	first.wantReply(here, port, ok(web, "1"))
	first.wantReply(local6, port, ok(web, "1"))
	first.stop()
	if got := ask(netip.AddrPortFrom(here, port)); got != refused {
		t.Errorf("after the end: %+v", got)
	}
	second := newFixture(t, nil)
	second.set(ips, check(web, port, 2, 2))
	second.wantReply(here, port, ok(web, "2"))
	second.wantReply(local6, port, ok(web, "2"))
	if lines := second.log.With("Cannot listen"); len(lines) > 0 {
		t.Errorf("what the first left was in the way: %q", lines)
	}
}

func TestCommittedDoesNotBlock(t *testing.T) {
	s := NewServices(ServicesOptions{}) // Run is not called
	for range 3 {
		s.Committed(&engine.Commit{Change: &plan.Change{HealthChecks: true}})
	}
}

func TestOtherChangesAreIgnored(t *testing.T) {
	w, port := newFixture(t, nil), freePorts(t, 1)[0]
	w.services.Committed(&engine.Commit{Change: &plan.Change{Revision: 1, Problems: true, Set: []*plan.Frontend{{}}}})
	w.set([]netip.Addr{here}, check(web, port, 1, 0))
	w.wantReply(here, port, ok(web, "1"))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looks != 1 {
		t.Errorf("looked %d times at what is desired, want once", w.looks)
	}
}
