package explain

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/model"
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
