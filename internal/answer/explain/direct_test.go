package explain

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/experiment"
	"sluice/internal/plan"
)

// TestDirectReturnNamesTheNode: who asks for a client learns which node answers it, and why one does not.
func TestDirectReturnNamesTheNode(t *testing.T) {
	direct := func(s *model.Service) { external(s); s.Direct = "sluice/forwarding" }
	sticky := func(s *model.Service) { direct(s); s.Affinity = 60 }
	peers := func(state model.PathState) []model.Event {
		return []model.Event{
			model.SetPeer{Peer: &model.Peer{Name: "far", IPs: addrs("192.0.2.3")}},
			model.SetPaths{Paths: []model.Path{{Addr: netip.MustParseAddr("192.0.2.3"), State: state}}},
		}
	}
	for _, tt := range []struct {
		name       string
		service    model.Event
		endpoints  []string
		state      model.PathState
		from       string
		node, path string
		ordinary   bool
		masquerade bool
		want       []string
	}{
		{name: "proven", service: service(direct), endpoints: []string{"far"}, state: model.PathProven, from: "203.0.113.9", node: "far", path: "proven",
			want: []string{"WORKS: this client's connections go to node far, which answers directly", "packets are handed to node far as they are", "the endpoint sees the client's address"}},
		{name: "filtered", service: service(direct), endpoints: []string{"far"}, state: model.PathFiltered, from: "outside", node: "far", path: "filtered", ordinary: true, masquerade: true,
			want: []string{"node far cannot be used for direct return", "the network drops it", "the endpoint sees this node's address"}},
		{name: "here", service: service(direct), endpoints: []string{"here"}, from: "203.0.113.9", node: "here",
			want: []string{"this client's connections stay on this node"}},
		{name: "by port", service: service(direct), endpoints: []string{"here", "far"}, state: model.PathProven, from: "203.0.113.9:40001", node: "far", path: "proven",
			want: []string{"by the client's address and port, slot "}},
		{name: "by address", service: service(sticky), endpoints: []string{"here", "far"}, state: model.PathProven, from: "203.0.113.11", node: "here",
			want: []string{"by the client's address, slot "}},
		{name: "any port", service: service(direct), endpoints: []string{"here", "far"}, state: model.PathNoMAC, from: "203.0.113.9", ordinary: true, masquerade: true,
			want: []string{"nodes far (share 1), here (share 1) answer directly, by the client's address and port; ask with --from and an IP and port", "node far: its clients get any endpoint, masqueraded", "if the client's node is one that cannot be used"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := start(t, behaviour{})
			cfg := plan.Config{NodeName: "here", MasqueradeBit: 14, CanDirectReturn: true, DirectReturn: true}
			p.engine.SetPlanConfig(cfg)
			events := append([]model.Event{model.SetNode{Node: &model.Node{Name: "here", IPs: addrs("192.0.2.1")}},
				model.SetHostIPs{IPs: addrs("192.0.2.1")}, tt.service, endpoints(tt.endpoints...)}, peers(tt.state)...)
			p.engine.Attempt(events...)
			a, text := p.ask(t, "198.51.100.1:80", tt.from)
			if a.Direct == nil || a.Direct.Node != tt.node || a.Direct.Path != tt.path || a.Direct.Ordinary != tt.ordinary {
				t.Errorf("the way is %+v", a.Direct)
			}
			if a.Masquerade == nil || a.Masquerade.Yes != tt.masquerade {
				t.Errorf("masquerading is %+v", a.Masquerade)
			}
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("the answer lacks %q:\n%s", want, text)
				}
			}
		})
	}
}

// TestTryWithDirectReturn: what is tried from a network namespace is judged by which node gets it, and of a client
// that is elsewhere it is said why nothing is tried.
func TestTryWithDirectReturn(t *testing.T) {
	direct := func(s *model.Service) { external(s); s.Direct = "sluice/forwarding" }
	p := start(t, behaviour{})
	p.engine.SetPlanConfig(plan.Config{NodeName: "here", MasqueradeBit: 14, CanDirectReturn: true, DirectReturn: true})
	p.engine.Attempt(model.SetNode{Node: &model.Node{Name: "here", IPs: addrs("192.0.2.1")}}, model.SetHostIPs{IPs: addrs("192.0.2.1")},
		model.SetPeer{Peer: &model.Peer{Name: "far", IPs: addrs("192.0.2.3")}},
		model.SetPaths{Paths: []model.Path{{Addr: netip.MustParseAddr("192.0.2.3"), State: model.PathProven}}},
		service(direct), endpoints("here", "far"))
	for _, tt := range []struct {
		from string
		want string // "" for an error
	}{
		{"203.0.113.9:40001", "not tried: this node hands packets of clients outside to node far, and cannot send one as such a client"},
		{"203.0.113.9", "to the node that the client's port chooses, and cannot send"},
		{"203.0.113.9:40000", ""}, // stays here
	} {
		r, err := p.Explain(t.Context(), Question{To: "198.51.100.1:80", From: tt.from, Try: true})
		if tt.want == "" {
			if err == nil || !strings.Contains(err.Error(), "has the address 203.0.113.9") {
				t.Errorf("from %s: %+v, %v", tt.from, r, err)
			}
			continue
		}
		var b strings.Builder
		if err := errors.Join(err, Write(&b, r)); err != nil || !strings.Contains(b.String(), tt.want) || !strings.Contains(b.String(), "try it from the client") || r.Flows {
			t.Errorf("from %s: %v, %v\n%s", tt.from, r.Flows, err, b.String())
		}
	}
	for client, node := range map[string]string{"203.0.113.9:40001": "far", "203.0.113.9:40000": ""} {
		r := &Reply{Answers: make([]Answer, 1)}
		at := netip.MustParseAddrPort(client)
		p.Try = func(context.Context, experiment.Attempt) *experiment.Result {
			return &experiment.Result{Outcome: experiment.Silent, Protocol: "TCP", Client: at}
		}
		p.try(t.Context(), r, []result{p.resultOf(t, at)}, experiment.Namespace{})
		if tried := r.Answers[0].Tried; tried.HandedTo != node {
			t.Errorf("what %s sends is handed to %q, not to %q: %+v", client, tried.HandedTo, node, tried)
		}
	}
}

// resultOf is what happens to a packet of a client outside.
func (p *proxy) resultOf(t *testing.T, client netip.AddrPort) result {
	t.Helper()
	r, err := p.parse(Question{To: "198.51.100.1:80", From: client.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	var all []result
	p.engine.Inspect(func(v engine.View) {
		r.View, r.judge = v, p.Judge(v)
		all, _, err = r.resolve()
	})
	if err != nil || len(all) != 1 {
		t.Fatalf("%d results, %v", len(all), err)
	}
	return all[0]
}
