//go:build linux

package telemetry

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

func TestNodePortsOnLoopbackAreCounted(t *testing.T) {
	const prefix = "kubeproxy_nftables_localhost_nodeport_"
	w := newWorld(t)
	w.want(prefix+"listeners", "IPv4 0", "IPv6 0")
	w.want(prefix+"listener_creation_failures_total", "IPv4 0", "IPv6 0")
	w.want(prefix+"rejected_packets_total", "IPv4 SCTP 0", "IPv4 TCP 0", "IPv4 UDP 0", "IPv6 SCTP 0", "IPv6 TCP 0", "IPv6 UDP 0")
	w.metrics.LoopbackListening(model.IPv4, 5)
	w.metrics.LoopbackListening(model.IPv4, 3)
	w.metrics.LoopbackNotListening(model.IPv6)
	w.metrics.LoopbackRefused(model.IPv4, model.UDP)
	w.metrics.LoopbackRefused(model.IPv4, model.UDP)
	w.want(prefix+"listeners", "IPv4 3", "IPv6 0")
	w.want(prefix+"listener_creation_failures_total", "IPv4 0", "IPv6 1")
	w.metrics.LoopbackUnserved(dataplane.LoopbackPackets{Family: model.IPv6, Protocol: model.SCTP}, 7)
	w.want(prefix+"rejected_packets_total", "IPv4 SCTP 0", "IPv4 TCP 0", "IPv4 UDP 2", "IPv6 SCTP 7", "IPv6 TCP 0", "IPv6 UDP 0")
}

func TestLoopbackEventNamesTheNode(t *testing.T) {
	got := LoopbackNodePortNotServed("here", web, errors.New("port is taken"))
	want := Event{
		Regarding: model.Object{Kind: "Service", Namespace: "default", Name: "web"}, Warning: true, Reason: "LoopbackNodePortNotServed", Action: "Listen",
		Note: "Node here cannot serve a node port on a loopback address: port is taken",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}
