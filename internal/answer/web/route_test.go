package web

import (
	"net/netip"
	"strings"
	"testing"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// drawn returns the text of the first way that a page draws.
func drawn(body string) string {
	_, rest, _ := strings.Cut(body, `<div class="route"`)
	if i := strings.Index(rest, `<details`); i >= 0 {
		rest = rest[:i]
	}
	rest, _, _ = strings.Cut(rest, `<p class="problem"`)
	rest, _, _ = strings.Cut(rest, `<div class="table`)
	return cards(`<li class="card"` + rest + "</li>")[0]
}

func TestWayOfAConnectionIsDrawn(t *testing.T) {
	w := newWorld(t)
	external := func(s *model.Service) { s.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("198.51.100.7")} }
	w.answers = silent(noon, 3, "10.244.9.1", "10.244.9.2")
	w.Sync(concat(
		app("default/half", "10.96.0.82", []string{"10.244.9.1", "10.244.2.1"}),
		app("default/dead", "10.96.0.83", []string{"10.244.9.1", "10.244.9.2"}),
		app("default/web", "10.96.0.80", []string{"10.244.1.1", "10.244.2.1", "10.244.1.2"}, external),
		app("default/none", "10.96.0.81", nil),
	)...)
	for link, want := range map[string]string{
		"name=web&from=pod": "a pod from its own address 10.96.0.80:80/TCP ClusterIP " +
			"from the client&#39;s address on this node 10.244.1.1:8080 10.244.1.2:8080 " +
			"from the client&#39;s address on other nodes 10.244.2.1:8080",
		"name=web&from=203.0.113.9": "outside from 203.0.113.9 198.51.100.7:80/TCP LoadBalancerIP " +
			"from this node&#39;s address on this node 10.244.1.1:8080 10.244.1.2:8080 " +
			"from this node&#39;s address on other nodes 10.244.2.1:8080",
		"name=half&from=pod": "a pod from its own address 10.96.0.82:80/TCP ClusterIP " +
			"from the client&#39;s address on this node 10.244.9.1:8080 does not answer " +
			"from the client&#39;s address on other nodes 10.244.2.1:8080",
		"name=dead&from=pod": "a pod from its own address 10.96.0.83:80/TCP ClusterIP " +
			"from the client&#39;s address on this node 10.244.9.1:8080 does not answer " +
			"from the client&#39;s address on other nodes 10.244.9.2:8080 does not answer",
		"name=none&from=pod": "a pod from its own address 10.96.0.81:80/TCP ClusterIP rejected",
	} {
		if got := drawn(w.get("/service?namespace=default&" + link).Body.String()); !strings.HasSuffix(got, want) {
			t.Errorf("%s draws %q, want %q", link, got, want)
		}
	}
}

// TestWayWithDirectReturnIsDrawn: packets that are handed on go by way of the node that answers, and only to its endpoints.
func TestWayWithDirectReturnIsDrawn(t *testing.T) {
	w := newWorldOf(t, clocktesting.NewFakeClock(noon), plan.Config{NodeName: "node1", MasqueradeBit: 14, CanDirectReturn: true, DirectReturn: true})
	at := func(ip string) func(*model.Service) {
		return func(s *model.Service) {
			s.Direct, s.LoadBalancerIPs = "sluice/forwarding", []netip.Addr{netip.MustParseAddr(ip)}
		}
	}
	far := enginetest.Service("default/far", "10.96.0.84", at("198.51.100.8"))
	w.Sync(concat(
		[]model.Event{
			model.SetNode{Node: &model.Node{Name: "node1", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}},
			model.SetPeer{Peer: &model.Peer{Name: "node2", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}},
			model.SetPaths{Paths: []model.Path{{Addr: netip.MustParseAddr("192.0.2.2"), State: model.PathProven}}},
		},
		app("default/both", "10.96.0.80", []string{"10.244.1.1", "10.244.2.1"}, at("198.51.100.7")),
		[]model.Event{far, enginetest.Slice(far.Service, "10.244.2.1@node2", "10.244.2.2@node2")},
	)...)
	for link, want := range map[string]string{
		"name=far&from=203.0.113.9": "outside from 203.0.113.9 198.51.100.8:80/TCP LoadBalancerIP " +
			"as it came, to node node2 answers directly from the client&#39;s address on other nodes 10.244.2.1:8080 10.244.2.2:8080",
		"name=both&from=203.0.113.9": "outside from 203.0.113.9 198.51.100.7:80/TCP LoadBalancerIP " +
			"from the client&#39;s address on this node 10.244.1.1:8080 " +
			"as it came, to the node of its slot answers directly from the client&#39;s address on other nodes 10.244.2.1:8080",
		"name=both&from=203.0.113.9:40000": "outside from 203.0.113.9 198.51.100.7:80/TCP LoadBalancerIP " +
			"from the client&#39;s address on this node 10.244.1.1:8080",
	} {
		if got := drawn(w.get("/service?namespace=default&" + link).Body.String()); !strings.HasSuffix(got, want) {
			t.Errorf("%s draws %q, want %q", link, got, want)
		}
	}
}
