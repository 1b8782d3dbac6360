package conntrack

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/conntrack/cta"
	"sluice/internal/model"
)

func TestConnectionsAreCountedByEndpoint(t *testing.T) {
	n := newNamespace(t)
	n.create(
		entry{to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: cta.TCPEstablished},
		entry{to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: cta.TCPEstablished},
		entry{to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: cta.TCPSynSent},
		entry{to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: cta.TCPTimeWait},
		entry{to: "10.96.0.1:80", by: "10.244.1.2:8080", protocol: model.TCP, state: cta.TCPSynSent},
		entry{to: "[fd00::10]:53", by: "[fd00::1:1]:53", protocol: model.UDP},
		entry{to: "10.244.1.1:8080", by: "10.244.1.1:8080", protocol: model.TCP, state: cta.TCPEstablished}, // not through a Service
	)
	got, err := Count(t.Context(), n.FD())
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.AddrPort]Connections{
		addrPort("10.244.1.1:8080"): {Open: 2, Unanswered: 1},
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
