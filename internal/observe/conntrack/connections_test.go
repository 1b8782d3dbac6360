//go:build linux

package conntrack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/model"
	"sluice/internal/testkit"
)

func TestConnectionsAreCountedByEndpoint(t *testing.T) {
	n := newNamespace(t)
	n.create(
		entry{to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
		entry{to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
		entry{to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: ctnetlink.TCPSynSent},
		entry{to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: ctnetlink.TCPTimeWait},
		entry{to: "10.96.0.1:80", by: "10.244.1.2:8080", protocol: model.TCP, state: ctnetlink.TCPSynSent},
		entry{to: "[fd00::10]:53", by: "[fd00::1:1]:53", protocol: model.UDP},
		entry{to: "10.244.1.1:8080", by: "10.244.1.1:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished}, // not through a Service
	)
	type count struct{ Open, Unanswered, Over int }
	got := map[netip.AddrPort]count{}
	if _, err := Connections(t.Context(), n.FD(), Selection{}, func(c Connection) {
		n := got[c.Endpoint]
		switch {
		case c.Over:
			n.Over++
		case c.Replied:
			n.Open++
		default:
			n.Unanswered++
		}
		got[c.Endpoint] = n
	}); err != nil {
		t.Fatal(err)
	}
	want := map[netip.AddrPort]count{
		addrPort("10.244.1.1:8080"): {Open: 2, Unanswered: 1, Over: 1},
		addrPort("10.244.1.2:8080"): {Unanswered: 1},
		addrPort("[fd00::1:1]:53"):  {Open: 1},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
	if left := n.entries(); len(left) != 7 {
		t.Errorf("%d entries are left of 7: %q", len(left), left)
	}
}

// A connection that is refused leaves no entry behind: it is seen when it ends. One that is
// answered is not, and one that nothing answers is still in the table.
func TestRefusedConnectionsAreSeen(t *testing.T) {
	n := newNamespace(t)
	n.shell(`ip link set lo up; ip addr add 192.0.2.1 dev lo
nft -f - <<'EOF'
table ip t {
	chain o {
		type nat hook output priority -100
		ip daddr 10.96.0.1 tcp dport 80 dnat to 192.0.2.1:8080
		ip daddr 10.96.0.1 tcp dport 81 dnat to 192.0.2.1:8081
		ip daddr 10.96.0.1 tcp dport 82 dnat to 192.0.2.1:8082
	}
	chain i {
		type filter hook input priority 0
		tcp dport 8082 drop
	}
}
EOF
ip route add 10.96.0.0/16 dev lo`)
	n.do(func() error {
		l, err := net.Listen("tcp4", "192.0.2.1:8080")
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, ended := make(chan Connection, 100), make(chan error, 1)
	go func() { ended <- WatchUnreplied(ctx, n.FD(), nil, func(c Connection) { seen <- c }) }()
	connect := func(port string) error {
		var err error
		n.do(func() error {
			var c net.Conn
			if c, err = net.DialTimeout("tcp4", "10.96.0.1:"+port, 200*time.Millisecond); err == nil {
				c.Close()
			}
			return nil
		})
		return err
	}
	testkit.Until(t, func() bool { // it listens
		if err := connect("81"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("connecting to nobody: %v", err)
		}
		select {
		case c := <-seen:
			return c.Endpoint == addrPort("192.0.2.1:8081") && c.Frontend == addrPort("10.96.0.1:81") && c.Protocol == model.TCP && !c.Replied
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	if err := connect("80"); err != nil {
		t.Fatal(err)
	}
	for deleted := range 2 { // by a program, which is no answer
		if err := connect("82"); !os.IsTimeout(err) {
			t.Fatalf("connecting to the silent one: %v", err)
		}
		if deleted == 0 {
			n.shell("conntrack -D -p tcp --orig-port-dst 82")
		}
	}
	if err := connect("81"); err == nil {
		t.Fatal("connected to nobody")
	}
	if c := <-seen; c.Endpoint != addrPort("192.0.2.1:8081") {
		t.Errorf("%+v ended without an answer", c)
	}
	waiting := 0
	if _, err := Connections(t.Context(), n.FD(), Selection{}, func(c Connection) {
		if !c.Replied {
			waiting++
			if c.Endpoint != addrPort("192.0.2.1:8082") {
				t.Errorf("%+v waits for an answer", c)
			}
		}
	}); err != nil || waiting != 1 {
		t.Errorf("%d connections wait, error %v", waiting, err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestConnectionsAreSelected(t *testing.T) {
	n := newNamespace(t)
	n.create(
		entry{to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
		entry{to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: ctnetlink.TCPSynSent},
		entry{to: "10.96.0.1:80", by: "10.244.1.2:8080", protocol: model.TCP, state: ctnetlink.TCPSynSent},
		entry{to: "[fd00::10]:80", by: "[fd00::1:1]:80", protocol: model.TCP, state: ctnetlink.TCPSynSent},
		entry{to: "[fd00::10]:80", by: "[fd00::1:1]:80", protocol: model.TCP, state: ctnetlink.TCPEstablished},
	)
	for _, tt := range []struct {
		name string
		s    Selection
		want int
	}{
		{"all", Selection{}, 5},
		{"without a reply", Selection{Unreplied: true}, 3},
		{"with a reply", Selection{Replied: true}, 2},
		{"of an endpoint", Selection{Endpoint: netip.MustParseAddr("10.244.1.1")}, 2},
		{"of an endpoint of IPv6", Selection{Endpoint: netip.MustParseAddr("fd00::1:1")}, 2},
		{"both", Selection{Unreplied: true, Endpoint: netip.MustParseAddr("10.244.1.1")}, 1},
		{"of nobody", Selection{Endpoint: netip.MustParseAddr("10.244.1.3")}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := 0
			if _, err := Connections(t.Context(), n.FD(), tt.s, func(Connection) { got++ }); err != nil || got != tt.want {
				t.Errorf("%d connections, want %d; error %v", got, tt.want, err)
			}
		})
	}
}

func BenchmarkConnections(b *testing.B) {
	const entries = 100_000
	n := newNamespace(b)
	n.create(foreignEntries(entries)...)
	for name, s := range map[string]Selection{"all": {}, "unreplied": {Unreplied: true}, "endpoint": {Endpoint: netip.MustParseAddr("10.244.1.1")}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var total time.Duration
			for b.Loop() {
				cost, err := Connections(b.Context(), n.FD(), s, func(Connection) {})
				if err != nil {
					b.Fatal(err)
				}
				total += cost
			}
			b.ReportMetric(float64(total.Nanoseconds())/float64(b.N*entries), "cpu-ns/entry")
		})
	}
}
