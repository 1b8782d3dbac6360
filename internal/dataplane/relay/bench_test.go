package relay

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/model"
	"sluice/internal/testkit"
)

// bothWays measures an endpoint as it is, and behind a Relay.
func bothWays(b *testing.B, endpoint netip.AddrPort, run func(b *testing.B, at string)) {
	relayed := newFixture(b, model.TCP)
	relayed.set(0, endpoint)
	b.Run("direct", func(b *testing.B) { run(b, endpoint.String()) })
	b.Run("relayed", func(b *testing.B) { run(b, relayed.Address.String()) })
}

func BenchmarkStream(b *testing.B) {
	endpoint := serveTCP(b, testkit.Loopback(2), func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	bothWays(b, endpoint, func(b *testing.B, at string) {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		chunk := make([]byte, 256<<10)
		b.SetBytes(int64(len(chunk)))
		for b.Loop() {
			if _, err := conn.Write(chunk); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkConnect(b *testing.B) {
	endpoint := serveTCP(b, testkit.Loopback(2), func(c *net.TCPConn) { _, _ = c.Write([]byte("x")) })
	bothWays(b, endpoint, func(b *testing.B, at string) {
		for b.Loop() {
			conn, err := net.Dial("tcp", at)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadAll(conn); err != nil {
				b.Fatal(err)
			}
			conn.Close()
		}
	})
}

// A client that nobody remembers evicts another one.
func BenchmarkAffinityEviction(b *testing.B) {
	p := NewBalancer(clock.RealClock{}, "web").NewPool()
	endpoint := netip.MustParseAddrPort("10.0.0.1:80")
	p.Set(routeTo(endpoint), none, time.Hour)
	client := netip.MustParseAddr("127.1.0.0")
	for range MaxAffinityEntries {
		p.chose(client, endpoint)
		client = client.Next()
	}
	for b.Loop() {
		p.chose(client, endpoint)
		client = client.Next()
	}
}
