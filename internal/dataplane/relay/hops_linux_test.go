package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/testkit"
)

// Relays whose endpoints are each other pass a connection round as often as routers would, and
// then end it.
func TestRingsEnd(t *testing.T) {
	for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
		for _, at := range []netip.Addr{testkit.Loopback(1), netip.IPv6Loopback()} {
			t.Run(fmt.Sprint(protocol, at.Is6()), func(t *testing.T) {
				budget := NewBudget(10_000)
				bind := func(o *Options) {
					o.Address, o.Budget = netip.AddrPortFrom(at, freePort(t, protocol, at)), budget
				}
				a, b := newFixture(t, protocol, bind), newFixture(t, protocol, bind)
				a.set(0, b.Address)
				b.set(0, a.Address)
				network := strings.ToLower(protocol.String())
				conn, err := net.Dial(network, a.Address.String())
				if err == nil { // else the reset came first
					defer conn.Close()
					_ = conn.SetDeadline(testkit.Deadline(testkit.Timeout))
					if _, err = fmt.Fprintln(conn, "round"); err == nil && protocol == model.TCP {
						_, err = conn.Read(make([]byte, 1))
					}
				}
				if protocol == model.TCP && !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
					t.Errorf("the client sees %v, want a reset", err)
				}
				testkit.Until(t, func() bool { return a.refused.Load()+b.refused.Load() > 0 })
				if told := append(a.log.With("round in circles"), b.log.With("round in circles")...); len(told) != 1 || !strings.Contains(told[0], "the Service at") {
					t.Errorf("it is told as %q", told)
				}
				if protocol == model.TCP {
					testkit.Until(t, func() bool { now, _ := budget.Connections(); return now == 0 })
				} else if n := budget.taken(); n != maxHops-1 {
					t.Errorf("a packet passed %d relays, want %d", n, maxHops-1)
				}
			})
		}
	}
}

// A relay takes one hop off, and a client cannot have more than usual.
func TestHopsAreCounted(t *testing.T) {
	for _, at := range []netip.Addr{testkit.Loopback(1), netip.IPv6Loopback()} {
		for sent, want := range map[int]int{64: 63, 255: 63, 10: 9} {
			seen := make(chan int, 1)
			l, err := (&server{Options: Options{Address: netip.AddrPortFrom(at, 0), Protocol: model.TCP}}).listenConfig(false).Listen(t.Context(), "tcp", netip.AddrPortFrom(at, 0).String())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				if c, err := l.Accept(); err == nil {
					defer c.Close()
					seen <- hopsOf(c.(*net.TCPConn))
					<-t.Context().Done()
				}
			}()
			b := newFixture(t, model.TCP, func(o *Options) { o.Address = netip.AddrPortFrom(at, freePort(t, model.TCP, at)) })
			b.set(0, l.Addr().(*net.TCPAddr).AddrPort())
			d := origin{hops: sent}.dialer(model.TCP, b.Address)
			conn, err := d.Dial("tcp", b.Address.String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got := testkit.Receive(t, seen, "a connection"); got != want {
				t.Errorf("at %v the endpoint of a client with %d hops sees %d, want %d", at, sent, got, want)
			}
		}
	}
}
