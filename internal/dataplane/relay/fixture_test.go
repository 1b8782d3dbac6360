package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/base/socketerror"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// fixture has a Relay and what it was heard of.
type fixture struct {
	*Relay
	t       testing.TB
	log     testkit.Journal
	refused atomic.Int64
	stop    context.CancelFunc // ends its connections
}

// newFixture makes a Relay on a free port of an address. In the end it must have
// let go of everything.
func newFixture(t testing.TB, protocol model.Protocol, edits ...func(*Options)) *fixture {
	t.Helper()
	b := &fixture{t: t}
	o := Options{
		Address:  netip.AddrPortFrom(testkit.Loopback(1), freePort(t, protocol, testkit.Loopback(1))),
		Protocol: protocol,
		Logger:   b.log.Logger(),
		Refused:  func(Refusal) { b.refused.Add(1) },
	}
	for _, edit := range edits {
		edit(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Relay, b.stop = New(ctx, o), cancel
	t.Cleanup(func() {
		cancel()
		b.Close()
		b.Wait()
	})
	return b
}

// set replaces the route by one to these endpoints. No other serves.
func (b *fixture) set(affinity time.Duration, endpoints ...netip.AddrPort) {
	b.t.Helper()
	route := routeTo(endpoints...)
	if err := b.Set(route, inPool(route), affinity); err != nil {
		b.t.Fatal(err)
	}
}

// drain replaces the route by one to an endpoint, while another one still serves.
func (b *fixture) drain(to, from netip.AddrPort) {
	b.t.Helper()
	f := plan.Frontend{Route: routeTo(to), AlsoServing: routeTo(from).Endpoints}
	if err := b.Set(f.Route, f.Serves, 0); err != nil {
		b.t.Fatal(err)
	}
}

// inPool and none report which endpoints keep their connections.
func inPool(route plan.Route) func(netip.AddrPort) bool { return (&plan.Frontend{Route: route}).Serves }
func none(netip.AddrPort) bool                          { return false }

func routeTo(endpoints ...netip.AddrPort) plan.Route {
	var route plan.Route
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	for _, e := range endpoints {
		route.Endpoints = append(route.Endpoints, plan.Endpoint{AddrPort: e})
	}
	return route
}

func freePort(t testing.TB, protocol model.Protocol, at netip.Addr) uint16 {
	t.Helper()
	if protocol == model.UDP {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).AddrPort().Port()
}

// serveTCP runs an endpoint on an address, and has each connection served.
func serveTCP(t testing.TB, at netip.Addr, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { listener.Close() })
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // a test may take all sockets away for a while
				time.Sleep(minPause)
				continue
			}
			serving.Go(func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			})
		}
	})
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

// named is an endpoint that says its name and then what it hears.
func named(t testing.TB, name string, at netip.Addr) netip.AddrPort {
	t.Helper()
	return serveTCP(t, at, func(conn *net.TCPConn) {
		fmt.Fprintln(conn, name)
		_, _ = io.Copy(conn, conn)
	})
}

// dialTCP connects to the Relay.
func (b *fixture) dialTCP() *net.TCPConn {
	b.t.Helper()
	conn, err := net.DialTimeout("tcp", b.Address.String(), testkit.Scaled(testkit.Timeout))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(testkit.Deadline(testkit.Timeout)); err != nil {
		b.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// ask makes a connection and returns what is said first.
func (b *fixture) ask() string {
	b.t.Helper()
	conn := b.dialTCP()
	defer conn.Close()
	return readLine(b.t, conn)
}

func readLine(t testing.TB, from io.Reader) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(from, b); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		if b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}

// say sends a line and expects it back.
func say(t testing.TB, conn io.ReadWriter, text string) {
	t.Helper()
	if _, err := fmt.Fprintln(conn, text); err != nil {
		t.Fatal(err)
	}
	if got := readLine(t, conn); got != text {
		t.Fatalf("%q came back as %q", text, got)
	}
}

// outcome is how an attempt to connect ended.
func (b *fixture) outcome(timeout time.Duration) string {
	conn, err := net.DialTimeout("tcp", b.Address.String(), testkit.Scaled(timeout))
	switch {
	case err == nil:
		conn.Close()
		return "connected"
	case errors.Is(err, socketerror.ConnectionRefused):
		return "refused"
	case isTimeout(err):
		return "silence"
	}
	return err.Error()
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
