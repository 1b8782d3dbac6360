package loopback

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/base/socketerror"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

var (
	web  = model.Name{Namespace: "default", Name: "web"}
	mail = model.Name{Namespace: "post", Name: "mail"}

	here   = testkit.Loopback(1)
	there  = testkit.Loopback(2)
	local6 = netip.IPv6Loopback()
)

// fixture is an engine as far as NodePorts see it, and the NodePorts.
type fixture struct {
	t     *testing.T
	ports *NodePorts
	log   testkit.Journal
	stop  func()

	mu        sync.Mutex
	desired   plan.Desired
	listening map[model.Family]int
	failures  map[model.Family]int
	failed    []model.Name
	refused   map[string]int
	accepted  atomic.Int64
}

// unheard are options with which nobody wants to know what happens.
var unheard = Options{
	Listening: func(model.Family, int) {}, NotListening: func(model.Family) {}, Failed: func(model.Name, error) {},
	Accepted: func() {}, Refused: func(model.Family, model.Protocol) {},
}

// newFixture has NodePorts that run until the test ends, or until stop.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{
		t: t, desired: plan.Desired{Frontends: map[plan.Key]*plan.Frontend{}},
		listening: map[model.Family]int{}, failures: map[model.Family]int{}, refused: map[string]int{},
	}
	w.ports = New(Options{
		Logger:       w.log.Logger(),
		Listening:    func(f model.Family, n int) { w.locked(func() { w.listening[f] = n }) },
		NotListening: func(f model.Family) { w.locked(func() { w.failures[f]++ }) },
		Failed:       func(service model.Name, _ error) { w.locked(func() { w.failed = append(w.failed, service) }) },
		Accepted:     func() { w.accepted.Add(1) },
		Refused:      func(f model.Family, p model.Protocol) { w.locked(func() { w.refused[fmt.Sprint(f, p)]++ }) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := w.ports.Run(ctx, w); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	w.stop = func() { cancel(); run.Wait() }
	t.Cleanup(w.stop)
	return w
}

func (w *fixture) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *fixture) Inspect(read func(engine.View)) {
	w.locked(func() { read(engine.View{Desired: &w.desired}) })
}

// serveOn has other loopback addresses served.
func (w *fixture) serveOn(ips ...netip.Addr) {
	w.locked(func() { w.desired.Settings.LoopbackIPs = ips })
	w.ports.Committed(&engine.Commit{Change: &plan.Change{Settings: &plan.Settings{LoopbackIPs: ips}}})
}

// set makes frontends desired, or changes them.
func (w *fixture) set(frontends ...*plan.Frontend) {
	w.locked(func() {
		for _, f := range frontends {
			w.desired.Frontends[f.Key] = f
		}
	})
	w.ports.Committed(&engine.Commit{Change: &plan.Change{Set: frontends}})
}

func (w *fixture) remove(keys ...plan.Key) {
	w.locked(func() {
		for _, key := range keys {
			delete(w.desired.Frontends, key)
		}
	})
	w.ports.Committed(&engine.Commit{Change: &plan.Change{Removed: keys}})
}

// nodePort is a frontend with these endpoints.
func nodePort(service model.Name, family model.Family, port uint16, protocol model.Protocol, endpoints ...netip.AddrPort) *plan.Frontend {
	f := &plan.Frontend{Kind: plan.NodePort, Service: service}
	f.Key = plan.Key{Addr: netip.IPv4Unspecified(), Port: port, Protocol: protocol}
	if family == model.IPv6 {
		f.Key.Addr = netip.IPv6Unspecified()
	}
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	for _, e := range endpoints {
		f.Route.Endpoints = append(f.Route.Endpoints, plan.Endpoint{AddrPort: e})
	}
	return f
}

// endpoint answers each connection, or packet, with its name.
func endpoint(t *testing.T, name string, protocol model.Protocol, at netip.Addr) netip.AddrPort {
	t.Helper()
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	if protocol == model.UDP {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		serving.Go(func() {
			for buffer := make([]byte, 64); ; {
				_, source, err := conn.ReadFromUDPAddrPort(buffer)
				if err != nil {
					return
				}
				_, _ = conn.WriteToUDPAddrPort([]byte(name), source)
			}
		})
		return conn.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				for buffer := make([]byte, 64); ; {
					if _, err := conn.Read(buffer); err != nil {
						return
					}
					_, _ = conn.Write([]byte(name))
				}
			})
		}
	})
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

const refused = "refused"

// want waits until an address answers as it should.
func (w *fixture) want(protocol model.Protocol, ip netip.Addr, port uint16, want string) {
	w.t.Helper()
	at := netip.AddrPortFrom(ip, port)
	testkit.Eventually(w.t, func() error {
		if got := ask(protocol, at); got != want {
			return fmt.Errorf("%v/%v says %q, want %q", at, protocol, got, want)
		}
		return nil
	})
}

// ask returns what is answered, or how that failed.
func ask(protocol model.Protocol, at netip.AddrPort) string {
	conn, err := net.DialTimeout(strings.ToLower(protocol.String()), at.String(), testkit.Scaled(testkit.Timeout))
	if err != nil {
		return failure(err)
	}
	defer conn.Close()
	return converse(conn)
}

func converse(conn net.Conn) string {
	_ = conn.SetDeadline(testkit.Deadline(time.Second))
	if _, err := conn.Write([]byte("who?")); err != nil {
		return failure(err)
	}
	buffer := make([]byte, 64)
	n, err := conn.Read(buffer)
	if err != nil {
		return failure(err)
	}
	return string(buffer[:n])
}

func failure(err error) string {
	if errors.Is(err, socketerror.ConnectionRefused) {
		return refused
	}
	return err.Error()
}

// freePort finds a port that is free for TCP and UDP on ::1, the one address
// that others use as well. It stays clear of those that clients get.
func freePort(t *testing.T) uint16 {
	t.Helper()
	for range 100 {
		at := netip.AddrPortFrom(local6, uint16(20000+rand.IntN(10000)))
		stream, err := net.Listen("tcp", at.String())
		if err != nil {
			continue
		}
		stream.Close()
		packets, err := net.ListenPacket("udp", at.String())
		if err != nil {
			continue
		}
		packets.Close()
		return at.Port()
	}
	t.Fatal("no port is free")
	return 0
}
