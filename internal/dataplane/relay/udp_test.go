package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/base/socketerror"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// answerUDP is an endpoint that answers each packet with its name and the port
// that it saw.
func answerUDP(t *testing.T, name string, at netip.AddrPort) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { conn.Close() })
	serving.Go(func() {
		buffer := make([]byte, maxPacket)
		for {
			n, source, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			answer := fmt.Appendf(nil, "%s %d %d", name, n, source.Port())
			_, _ = conn.WriteToUDPAddrPort(answer, source)
		}
	})
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func anyPort(last byte) netip.AddrPort { return netip.AddrPortFrom(testkit.Loopback(last), 0) }

// client is a UDP socket of a client.
type client struct {
	*net.UDPConn
	t testing.TB
}

func (b *fixture) client() client {
	b.t.Helper()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(b.Address))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	return client{conn, b.t}
}

// ask sends packets until one is answered, and returns who did and to which
// port. No answer within testkit.Timeout ends the test.
func (c client) ask() (name string, port int) {
	c.t.Helper()
	testkit.Eventually(c.t, func() (err error) {
		name, port, err = c.try(time.Second)
		return err
	})
	return name, port
}

func (c client) try(timeout time.Duration) (name string, port int, err error) {
	if _, err := c.Write([]byte("who?")); err != nil {
		return "", 0, err
	}
	if err := c.SetReadDeadline(testkit.Deadline(timeout)); err != nil {
		return "", 0, err
	}
	buffer := make([]byte, 256)
	n, err := c.Read(buffer)
	if err != nil {
		return "", 0, err
	}
	var size int
	_, err = fmt.Sscanf(string(buffer[:n]), "%s %d %d", &name, &size, &port)
	return name, port, err
}

func TestUDPClientKeepsItsEndpoint(t *testing.T) {
	b := newFixture(t, model.UDP)
	b.set(0, answerUDP(t, "one", anyPort(2)), answerUDP(t, "two", anyPort(3)))
	seen := map[string]bool{}
	for range 60 { // both are missed by chance once in 2^59 times
		c := b.client()
		name, port := c.ask()
		for range 3 {
			if again, sameport := c.ask(); again != name || sameport != port {
				t.Fatalf("answered by %s to port %d, and before by %s to port %d", again, sameport, name, port)
			}
		}
		seen[name] = true
	}
	if !seen["one"] || !seen["two"] {
		t.Errorf("clients were answered by %v only", seen)
	}
}

func TestMaxPacket(t *testing.T) {
	b := newFixture(t, model.UDP)
	b.set(0, answerUDP(t, "one", anyPort(2)))
	c := b.client()
	const longest = 65507 // what IPv4 and UDP leave of 65535 bytes
	testkit.Eventually(t, func() error {
		if _, err := c.Write(make([]byte, longest)); err != nil {
			return err
		}
		_ = c.SetReadDeadline(testkit.Deadline(time.Second))
		buffer := make([]byte, 256)
		n, err := c.Read(buffer)
		if err != nil {
			return err
		}
		var name string
		var size, port int
		if _, err := fmt.Sscanf(string(buffer[:n]), "%s %d %d", &name, &size, &port); err != nil || size != longest {
			return fmt.Errorf("the endpoint got %d bytes, error %v", size, err)
		}
		return nil
	})
}

func TestUDPClientGetsNewEndpoint(t *testing.T) {
	b := newFixture(t, model.UDP)
	one, two := answerUDP(t, "one", anyPort(2)), answerUDP(t, "two", anyPort(3))
	for _, affinity := range []time.Duration{0, time.Hour} {
		b.set(affinity, one)
		c := b.client()
		if name, _ := c.ask(); name != "one" {
			t.Fatalf("answered by %s", name)
		}
		b.set(affinity, two)
		if name, _ := c.ask(); name != "two" {
			t.Errorf("answered by %s, which left", name)
		}
	}
}

func TestUDPClientStaysWithServingEndpoint(t *testing.T) {
	b := newFixture(t, model.UDP)
	one, two := answerUDP(t, "one", anyPort(2)), answerUDP(t, "two", anyPort(3))
	b.set(0, one)
	c := b.client()
	if name, _ := c.ask(); name != "one" {
		t.Fatalf("answered by %s", name)
	}
	b.drain(two, one)
	if name, _ := c.ask(); name != "one" {
		t.Errorf("moved to %s though its endpoint still serves", name)
	}
	if name, _ := b.client().ask(); name != "two" {
		t.Errorf("a new client is answered by %s, which gets no new ones", name)
	}
	b.set(0, two)
	if name, _ := c.ask(); name != "two" {
		t.Errorf("answered by %s, which serves no longer", name)
	}
}

func TestUDPEndpointThatRefusesIsSkipped(t *testing.T) {
	b := newFixture(t, model.UDP)
	dead := netip.AddrPortFrom(testkit.Loopback(3), freePort(t, model.UDP, testkit.Loopback(3)))
	b.set(time.Hour, answerUDP(t, "living", anyPort(2)), dead)
	for range 20 {
		if name, _ := b.client().ask(); name != "living" {
			t.Fatalf("answered by %s", name)
		}
	}
}

func TestGoneClientsDoNotAffectOthers(t *testing.T) {
	b := newFixture(t, model.UDP)
	b.set(0, answerUDP(t, "one", anyPort(2)))
	for range 50 { // the answers meet closed ports
		c := b.client()
		if _, err := c.Write([]byte("bye")); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if name, _ := b.client().ask(); name != "one" {
		t.Errorf("answered by %s", name)
	}
}

func TestEmptyUDPPool(t *testing.T) {
	b := newFixture(t, model.UDP)
	endpoint := answerUDP(t, "one", anyPort(2))
	attempt := func(timeout time.Duration) string {
		_, _, err := b.client().try(timeout)
		switch {
		case err == nil:
			return "answered"
		case errors.Is(err, socketerror.ConnectionRefused):
			return "refused"
		case isTimeout(err):
			return "silence"
		}
		return err.Error()
	}
	steps := []struct {
		name    string
		route   plan.Route
		timeout time.Duration
		want    string
	}{
		{"no endpoint at first", plan.Route{}, testkit.Timeout, "refused"},
		{"first endpoint", routeTo(endpoint), testkit.Timeout, "answered"},
		{"last endpoint left", plan.Route{}, testkit.Timeout, "refused"},
		{"none, and to be dropped", plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}, 300 * time.Millisecond, "silence"},
		{"endpoint came back", routeTo(endpoint), testkit.Timeout, "answered"},
	}
	for _, step := range steps {
		if err := b.Set(step.route, inPool(step.route), 0); err != nil {
			t.Fatal(err)
		}
		if got := attempt(step.timeout); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	if n := b.refused.Load(); n != 1 {
		t.Errorf("%d packets were counted as turned away, want the one that was dropped", n)
	}
}

func TestIdleUDPClientsAreForgotten(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	b := newFixture(t, model.UDP, func(o *Options) { o.Clock = clock })
	b.set(0, answerUDP(t, "one", anyPort(2)))
	silent, lively := b.client(), b.client()
	_, before := silent.ask()
	_, lasting := lively.ask()
	for range 8 {
		testkit.Eventually(t, func() error {
			if !clock.HasWaiters() {
				return errors.New("none waits for idle clients")
			}
			return nil
		})
		clock.Step(IdleTimeout / 4)
		if _, port := lively.ask(); port != lasting {
			t.Fatalf("a client that talks got another socket, port %d instead of %d", port, lasting)
		}
	}
	testkit.Eventually(t, func() error {
		if n := b.front.(*udpFront).count(); n != 1 {
			return fmt.Errorf("%d clients are remembered, want the one that talks", n)
		}
		return nil
	})
	if _, port := silent.ask(); port == before {
		t.Errorf("the client that was silent still has port %d", port)
	}
}

// count is how many clients the front has.
func (f *udpFront) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sessions)
}

func TestTooManyUDPClientsEvictTheOldest(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	const most = 30
	budget := NewBudget(most * 4 / 3) // for a client address
	b := newFixture(t, model.UDP, func(o *Options) { o.Clock, o.Budget = clock, budget })
	b.set(0, answerUDP(t, "one", anyPort(2)))
	oldest := b.client()
	_, port := oldest.ask()
	second := b.client()
	clock.Step(time.Second)
	_, kept := second.ask()
	for range most - 1 {
		clock.Step(time.Millisecond)
		b.client().ask() // and stays open, so that no other gets its port
	}
	if n := b.front.(*udpFront).count(); n != most {
		t.Errorf("%d clients are remembered, want %d", n, most)
	}
	if _, after := second.ask(); after != kept {
		t.Error("another client than the oldest was pushed out")
	}
	if _, after := oldest.ask(); after == port {
		t.Error("the oldest client was not pushed out")
	}
	b.Close()
	b.Wait()
	if n := budget.taken(); n != 0 || len(budget.clients)+len(budget.services) != 0 {
		t.Errorf("%d files are not given back", n)
	}
}
