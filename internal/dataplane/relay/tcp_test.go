package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/base/socketerror"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

func TestConnectionsAreBalanced(t *testing.T) {
	b := newFixture(t, model.TCP)
	b.set(0, named(t, "one", testkit.Loopback(2)), named(t, "two", testkit.Loopback(3)), named(t, "three", testkit.Loopback(4)))
	const tries = 600
	counts := map[string]int{}
	for range tries {
		counts[b.ask()]++
	}
	for _, name := range []string{"one", "two", "three"} {
		if n := counts[name]; n < tries/6 || n > tries/2 { // ten standard deviations from a third
			t.Errorf("%d of %d connections went to %s, want about a third: %v", n, tries, name, counts)
		}
	}
}

func TestBothFamiliesAreServed(t *testing.T) {
	local6 := netip.IPv6Loopback()
	b := newFixture(t, model.TCP, func(o *Options) {
		o.Address = netip.AddrPortFrom(local6, freePort(t, model.TCP, local6))
	})
	b.set(0, named(t, "six", local6))
	if got := b.ask(); got != "six" {
		t.Errorf("answered by %q", got)
	}
}

func TestManyBytesInBothDirections(t *testing.T) {
	b := newFixture(t, model.TCP)
	b.set(0, serveTCP(t, testkit.Loopback(2), func(conn *net.TCPConn) { _, _ = io.Copy(struct{ io.Writer }{conn}, conn) })) // without splice
	sent := make([]byte, 5<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(sent)
	conn := b.dialTCP()
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("got %d bytes back, error %v, want the %d that were sent", len(got), err, len(sent))
	}
}

func TestHalfClose(t *testing.T) {
	tests := []struct {
		name string
		// Who ends its direction first, and what is still said the other way.
		endpoint, client func(*net.TCPConn) string
		want             [2]string // what endpoint and client heard
	}{
		{
			name: "client ends first",
			endpoint: func(c *net.TCPConn) string {
				heard, _ := io.ReadAll(c)
				fmt.Fprint(c, "late answer")
				return string(heard)
			},
			client: func(c *net.TCPConn) string {
				fmt.Fprint(c, "question")
				_ = c.CloseWrite()
				heard, _ := io.ReadAll(c)
				return string(heard)
			},
			want: [2]string{"question", "late answer"},
		},
		{
			name: "endpoint ends first",
			endpoint: func(c *net.TCPConn) string {
				fmt.Fprint(c, "banner")
				_ = c.CloseWrite()
				heard, _ := io.ReadAll(c)
				return string(heard)
			},
			client: func(c *net.TCPConn) string {
				heard, _ := io.ReadAll(c)
				fmt.Fprint(c, "late words")
				_ = c.CloseWrite()
				return string(heard)
			},
			want: [2]string{"late words", "banner"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			heard := make(chan string, 1)
			b := newFixture(t, model.TCP)
			b.set(0, serveTCP(t, testkit.Loopback(2), func(c *net.TCPConn) { heard <- tt.endpoint(c) }))
			client := tt.client(b.dialTCP())
			if diff := cmp.Diff(tt.want, [2]string{<-heard, client}); diff != "" {
				t.Errorf("heard by endpoint and client (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResetIsForwarded(t *testing.T) {
	b := newFixture(t, model.TCP)
	b.set(0, serveTCP(t, testkit.Loopback(2), func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		reset(c)
	}))
	conn := b.dialTCP()
	fmt.Fprint(conn, "x")
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, socketerror.ConnectionReset) {
		t.Errorf("the client reads %v, want a reset", err)
	}
}

// The kernel tells one direction only that a connection was reset. The other one does not take
// that for the end of the stream, but an end is one also if all is over by then.
func TestResetIsNotTheEnd(t *testing.T) {
	for name, inOrder := range map[string]bool{"reset": false, "both ended": true} {
		t.Run(name, func(t *testing.T) {
			endpoint, from := tcpPair(t)
			to, client := tcpPair(t)
			opposite := &half{from: to, to: from}
			if inOrder {
				opposite.ended.Store(true)
				_ = from.CloseWrite()
				_, _ = io.Copy(io.Discard, endpoint)
				endpoint.Close()
			} else {
				reset(endpoint)
			}
			testkit.Until(t, func() bool { return over(from) })
			_, _ = from.Write([]byte("this hears of it"))
			(&half{from: from, to: to}).forward(opposite)
			_, err := client.Read(make([]byte, 1))
			if inOrder != errors.Is(err, io.EOF) || !inOrder && !errors.Is(err, socketerror.ConnectionReset) {
				t.Errorf("the client reads %v", err)
			}
		})
	}
}

// tcpPair returns the two ends of a connection.
func tcpPair(t *testing.T) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	accepted := make(chan *net.TCPConn, 1)
	at := serveTCP(t, testkit.Loopback(2), func(c *net.TCPConn) {
		accepted <- c
		<-t.Context().Done() // and then it is closed
	})
	conn, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn), testkit.Receive(t, accepted, "a connection")
}

func TestUnresponsiveEndpointIsSkipped(t *testing.T) {
	b := newFixture(t, model.TCP)
	dead := netip.AddrPortFrom(testkit.Loopback(3), freePort(t, model.TCP, testkit.Loopback(3)))
	b.set(time.Hour, named(t, "living", testkit.Loopback(2)), dead)
	for range 20 {
		if got := b.ask(); got != "living" {
			t.Fatalf("answered by %q", got)
		}
	}
	if n := b.refused.Load(); n > 0 {
		t.Errorf("%d connections were refused", n)
	}
}

func TestRefusedConnectionIsReset(t *testing.T) {
	b := newFixture(t, model.TCP)
	b.set(0, netip.AddrPortFrom(testkit.Loopback(3), freePort(t, model.TCP, testkit.Loopback(3))))
	conn, err := net.Dial("tcp", b.Address.String())
	if err == nil { // else the reset came first
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, socketerror.ConnectionReset) {
		t.Errorf("the client sees %v, want a reset", err)
	}
	testkit.Eventually(t, func() error {
		if n := b.refused.Load(); n != 1 {
			return fmt.Errorf("%d refusals counted, want 1", n)
		}
		return nil
	})
}

func TestEstablishedOutliveChanges(t *testing.T) {
	b := newFixture(t, model.TCP)
	one, two := named(t, "one", testkit.Loopback(2)), named(t, "two", testkit.Loopback(3))
	b.set(0, one)
	conn := b.dialTCP()
	readLine(t, conn)
	b.set(0, two)
	say(t, conn, "the endpoint left")
	if got := b.ask(); got != "two" {
		t.Errorf("a new connection is answered by %q", got)
	}
	b.set(0)
	say(t, conn, "the pool is empty")
	b.set(0, two)
	b.Close()
	say(t, conn, "the relay is closed")
	b.stop()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, socketerror.ConnectionReset) {
		t.Errorf("after the process was asked to end the client reads %v, want a reset", err)
	}
}

func TestResetRemoved(t *testing.T) {
	b := newFixture(t, model.TCP, func(o *Options) { o.ResetRemoved = true })
	one, two := named(t, "one", testkit.Loopback(2)), named(t, "two", testkit.Loopback(3))
	b.set(0, one)
	leaving := b.dialTCP()
	readLine(t, leaving)
	b.set(0, one, two)
	say(t, leaving, "one is still there")
	b.drain(two, one)
	say(t, leaving, "one still serves")
	if got := b.ask(); got != "two" {
		t.Errorf("a new connection is answered by %q", got)
	}
	b.set(0, two)
	if _, err := leaving.Read(make([]byte, 1)); !errors.Is(err, socketerror.ConnectionReset) {
		t.Errorf("after its endpoint left the client reads %v, want a reset", err)
	}
	staying := b.dialTCP()
	readLine(t, staying)
	b.Close()
	say(t, staying, "the relay is closed, but the endpoint is there")
}

func TestEmptyPool(t *testing.T) {
	const soon, late = 300 * time.Millisecond, testkit.Timeout
	b := newFixture(t, model.TCP)
	endpoint := named(t, "one", testkit.Loopback(2))
	steps := []struct {
		name    string
		route   plan.Route
		timeout time.Duration
		want    string
	}{
		{"no endpoint at first", plan.Route{}, late, "refused"},
		{"first endpoint", routeTo(endpoint), late, "connected"},
		{"last endpoint left", plan.Route{}, late, "refused"},
		{"none, and to be dropped", plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}, soon, "silence"},
		{"endpoint came back", routeTo(endpoint), late, "connected"},
		{"to be dropped from one moment to the next", plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}, soon, "silence"},
		{"endpoint is there again", routeTo(endpoint), late, "connected"},
	}
	for _, step := range steps {
		if err := b.Set(step.route, inPool(step.route), 0); err != nil {
			t.Fatal(err)
		}
		if got := b.outcome(step.timeout); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}

func TestPortInUse(t *testing.T) {
	b := newFixture(t, model.TCP)
	other, err := net.Listen("tcp", b.Address.String())
	if err != nil {
		t.Fatal(err)
	}
	route := routeTo(named(t, "one", testkit.Loopback(2)))
	if err := b.Set(route, inPool(route), 0); !errors.Is(err, socketerror.AddressInUse) {
		t.Errorf("error is %v", err)
	}
	if b.Listening() {
		t.Error("it claims to listen")
	}
	other.Close()
	if err := b.Set(route, inPool(route), 0); err != nil || !b.Listening() {
		t.Fatalf("the port is free, but: %v", err)
	}
	if got := b.ask(); got != "one" {
		t.Errorf("answered by %q", got)
	}
}

// All that share a budget are bounded together, and what exceeds it is reset.
func TestBudgetBoundsConnections(t *testing.T) {
	budget := NewBudget(4 * filesOfConnection) // three of them for one client
	share := func(o *Options) { o.Budget = budget }
	endpoint := named(t, "hello", testkit.Loopback(2))
	a, b := newFixture(t, model.TCP, share), newFixture(t, model.TCP, share)
	a.set(0, endpoint)
	b.set(0, endpoint)
	first := a.dialTCP()
	readLine(t, first)
	readLine(t, b.dialTCP())
	readLine(t, b.dialTCP())
	another := func() error {
		conn, err := net.Dial("tcp", b.Address.String())
		if err != nil {
			return err // the reset may come as early as that
		}
		defer conn.Close()
		_ = conn.SetDeadline(testkit.Deadline(testkit.Timeout))
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	if err := another(); !errors.Is(err, socketerror.ConnectionReset) {
		t.Errorf("one connection too many reads %v, want a reset", err)
	}
	told := b.log.With("as many as file descriptors allow")
	if len(told) != 1 || !strings.Contains(told[0], "client 127.0.0.1") || b.refused.Load() != 1 {
		t.Errorf("%d refusals are counted, and told of as %q", b.refused.Load(), told)
	}
	if now, limit := budget.Connections(); now != 3 || limit != 4 {
		t.Errorf("%d of %d connections", now, limit)
	}
	first.Close()
	testkit.Eventually(t, another)
}

func TestDevice(t *testing.T) {
	b := newFixture(t, model.TCP, func(o *Options) { o.Device = "lo" })
	b.set(0, named(t, "one", testkit.Loopback(2)))
	if got := b.ask(); got != "one" {
		t.Errorf("answered by %q", got)
	}
	gone := newFixture(t, model.TCP, func(o *Options) { o.Device = "nosuchdevice0" })
	if err := gone.Set(routeTo(b.Address), none, 0); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("error is %v", err)
	}
}

func TestOtherProtocolsAreRefused(t *testing.T) {
	b := newFixture(t, model.TCP, func(o *Options) { o.Protocol = model.SCTP })
	if err := b.Set(routeTo(b.Address), none, 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error is %v", err)
	}
}
