//go:build linux

package lab

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/testkit"
)

// rules stand in for a proxy: one service with endpoints on both nodes, one
// that masquerades, one address that rejects and one that drops.
const rules = `
table inet standin {
	chain prerouting {
		type nat hook prerouting priority dstnat;
		ip daddr 10.96.0.1 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip to 10.244.1.1:8080
		ip6 daddr fd00:10:96::1 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip6 to [fd00:10:244:1::1]:8080
		ip daddr { 10.96.0.2, 10.96.0.3 } meta l4proto { tcp, udp, sctp } th dport 80 dnat ip to 10.244.2.1:8081
		ip6 daddr { fd00:10:96::2, fd00:10:96::3 } meta l4proto { tcp, udp, sctp } th dport 80 dnat ip6 to [fd00:10:244:2::1]:8081
	}
	chain output {
		type nat hook output priority -100;
		jump prerouting_too
	}
	chain prerouting_too {
		ip daddr 10.96.0.1 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip to 10.244.1.1:8080
		ip6 daddr fd00:10:96::1 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip6 to [fd00:10:244:1::1]:8080
	}
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ct original ip daddr 10.96.0.2 masquerade
		ct original ip6 daddr fd00:10:96::2 masquerade
		ct original ip daddr 10.96.0.1 ip saddr 10.244.1.1 masquerade
		ct original ip6 daddr fd00:10:96::1 ip6 saddr fd00:10:244:1::1 masquerade
	}
	chain forward {
		type filter hook forward priority 0;
		ip daddr 10.96.0.8 meta l4proto tcp reject with tcp reset
		ip6 daddr fd00:10:96::8 meta l4proto tcp reject with tcp reset
		ip daddr 10.96.0.8 reject
		ip6 daddr fd00:10:96::8 reject
		ip daddr 10.96.0.9 drop
		ip6 daddr fd00:10:96::9 drop
	}
	chain local {
		type filter hook output priority 0;
		ip daddr 10.96.0.9 drop
		ip6 daddr fd00:10:96::9 drop
	}
}`

func startWithRules(t *testing.T) *Lab {
	t.Helper()
	l := Start(t)
	node, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Run(t.Context(), Command{Args: []string{"nft", "-f", "-"}, Input: rules}); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestProbeOutcomes(t *testing.T) {
	t.Parallel()
	l := startWithRules(t)
	tests := []struct {
		name string
		from string
		to   [2]string
		port uint16
		want string // kind, answering host:port, host seen as source
	}{
		{"pod talks to pod", "pod1", [2]string{"10.244.1.2", "fd00:10:244:1::2"}, 8080, "answered pod2:8080 pod1"},
		{"pod behind the bridge talks to a remote pod", "pod3", [2]string{"10.244.2.2", "fd00:10:244:2::2"}, 9090, "answered remote2:9090 pod3"},
		{"remote pod talks to pod behind the bridge", "remote1", [2]string{"10.244.1.3", "fd00:10:244:1::3"}, 9090, "answered pod3:9090 remote1"},
		{"node talks to pod", "node1", [2]string{"10.244.1.1", "fd00:10:244:1::1"}, 8080, "answered pod1:8080 node1"},
		{"client talks to node", "client", [2]string{"192.0.2.10", "2001:db8::10"}, 8081, "answered node1:8081 client"},
		{"nobody listens on the port", "client", [2]string{"192.0.2.10", "2001:db8::10"}, 4, "refused"},
		{"service with a local endpoint", "client", [2]string{"10.96.0.1", "fd00:10:96::1"}, 80, "answered pod1:8080 client"},
		{"service from a remote pod", "remote2", [2]string{"10.96.0.1", "fd00:10:96::1"}, 80, "answered pod1:8080 remote2"},
		{"service from the node", "node1", [2]string{"10.96.0.1", "fd00:10:96::1"}, 80, "answered pod1:8080 node1"},
		{"service from its endpoint", "pod1", [2]string{"10.96.0.1", "fd00:10:96::1"}, 80, "answered pod1:8080 node1"},
		{"remote endpoint, masqueraded", "client2", [2]string{"10.96.0.2", "fd00:10:96::2"}, 80, "answered remote1:8081 node1"},
		{"remote endpoint, not masqueraded", "client2", [2]string{"10.96.0.3", "fd00:10:96::3"}, 80, "dropped"},
		{"rejected", "client", [2]string{"10.96.0.8", "fd00:10:96::8"}, 80, "refused"},
		{"dropped", "pod1", [2]string{"10.96.0.9", "fd00:10:96::9"}, 80, "dropped"},
		{"dropped on the node itself", "node1", [2]string{"10.96.0.9", "fd00:10:96::9"}, 80, "dropped"},
		{"left alone", "client", [2]string{"198.18.0.1", "2001:db8:18::1"}, 80, "passed"},
		{"left alone on the node itself", "node1", [2]string{"198.18.0.1", "2001:db8:18::1"}, 80, "passed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var flows []Flow
			for _, protocol := range []Protocol{TCP, UDP, SCTP} {
				for _, to := range test.to {
					flows = append(flows, Flow{From: test.from, Protocol: protocol, To: netip.AddrPortFrom(netip.MustParseAddr(to), test.port)})
				}
			}
			for i := range flows {
				if !strings.HasPrefix(test.want, "answered") {
					flows[i].Timeout = ShortTimeout
				}
			}
			for i, o := range l.Probe(t.Context(), flows) {
				if got := describe(l, o); got != test.want {
					t.Errorf("%v: %v, want %s", flows[i], o, test.want)
				}
			}
		})
	}
}

func describe(l *Lab, o Outcome) string {
	if o.Kind != Answered {
		return string(o.Kind)
	}
	source := o.Source.Addr().String()
	if h := l.Owner(o.Source.Addr()); h != nil {
		source = h.Name
	}
	return fmt.Sprintf("%s %s:%d %s", o.Kind, o.By, o.Port, source)
}

func TestLabLeavesNothingBehind(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	node := l.hosts["node1"]
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if names := leftoversOf(l); len(names) > 0 {
		t.Errorf("namespaces left: %v", names)
	}
	if err := node.Do(func() error { return nil }); err == nil {
		t.Error("the namespace still takes calls")
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		l, err := New()
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkProbe(b *testing.B) {
	for _, protocol := range []Protocol{TCP, UDP, SCTP} {
		b.Run(string(protocol), func(b *testing.B) {
			l := Start(b)
			flows := make([]Flow, 1000)
			for i := range flows {
				flows[i] = Flow{From: "pod1", Protocol: protocol, To: netip.MustParseAddrPort("10.244.1.2:8080")}
			}
			for b.Loop() {
				ctx, cancel := testkit.WithTimeout(b.Context(), testkit.Timeout)
				for i, o := range l.Probe(ctx, flows) {
					if o.Kind != Answered {
						b.Fatalf("%v: %v", flows[i], o)
					}
				}
				cancel()
			}
			b.ReportMetric(float64(b.N*len(flows))/b.Elapsed().Seconds(), "probes/s")
		})
	}
}
