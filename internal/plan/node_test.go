package plan

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"sluice/internal/model"
)

func TestEligibility(t *testing.T) {
	const (
		missing = `there is no Node object named "here"`
		waiting = "the proxy waits for the pod CIDR of the node"
	)
	var (
		inCluster = Config{NodeName: here, RequireNode: true}
		inFiles   = Config{NodeName: here}
		byPods    = Config{NodeName: here, RequireNode: true, DetectLocal: DetectNodeCIDR}

		staying = &model.Node{Name: here}
		tainted = &model.Node{Name: here, Leaving: "tainted"}
		podded  = &model.Node{Name: here, PodCIDRs: prefixes("10.1.0.0/24")}
	)
	tests := []struct {
		name string
		cfg  Config
		in   []*model.Node // one after the other
		want Eligibility
	}{
		{"there", inCluster, []*model.Node{nil, staying}, Eligibility{}},
		{"never been there", inCluster, []*model.Node{nil}, Eligibility{missing, true}},
		{"deleted", inCluster, []*model.Node{staying, nil}, Eligibility{missing, true}},
		{"created again", inCluster, []*model.Node{staying, nil, staying}, Eligibility{}},
		{"marked for removal", inCluster, []*model.Node{staying, tainted}, Eligibility{"tainted", false}},
		{"mark taken back", inCluster, []*model.Node{tainted, staying}, Eligibility{}},
		{"none among manifests", inFiles, []*model.Node{nil}, Eligibility{}},
		{"marked among manifests", inFiles, []*model.Node{tainted}, Eligibility{"tainted", false}},
		{"no pod CIDR by which pods are recognised", byPods, []*model.Node{staying}, Eligibility{waiting, false}},
		{"no Node by which pods are recognised", byPods, []*model.Node{nil}, Eligibility{waiting, false}},
		{"the pod CIDR has come", byPods, []*model.Node{nil, staying, podded}, Eligibility{}},
		{"marked for removal, without a pod CIDR", byPods, []*model.Node{tainted}, Eligibility{"tainted", false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state, planner := model.NewState(), New(tt.cfg)
			for _, node := range tt.in {
				var dirty model.Dirty
				state.Apply(&dirty, model.SetNode{Node: node})
				planner.Update(state, &dirty)
			}
			wantEqual(t, "eligibility", tt.want, planner.Desired().Eligibility)
		})
	}
}

func TestNodeProblems(t *testing.T) {
	bad := model.Problem{Object: model.NodeObject("here"), Field: "status.addresses[0].address", Reason: "no address"}
	tests := []struct {
		name   string
		cfg    Config
		in     *model.Node
		fields []string
	}{
		{"nothing", Config{NodeName: here, RequireNode: true}, &model.Node{Name: here}, nil},
		{"the Node", Config{NodeName: here, RequireNode: true}, nil, []string{"metadata.name"}},
		{"the Node, among manifests", Config{NodeName: here}, nil, nil},
		{"the Node, by which pods are recognised", Config{NodeName: here, RequireNode: true, DetectLocal: DetectNodeCIDR}, nil, []string{"metadata.name", "spec.podCIDRs"}},
		{"the pod CIDR", Config{NodeName: here, DetectLocal: DetectNodeCIDR}, &model.Node{Name: here, Problems: []model.Problem{bad}}, []string{bad.Field, "spec.podCIDRs"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			planner := New(tt.cfg)
			change := planner.Update(stateOf(model.SetNode{Node: tt.in}), &model.Dirty{All: true})
			var fields []string
			for _, p := range planner.Desired().Problems[model.NodeObject("here")] {
				fields = append(fields, p.Field)
			}
			wantEqual(t, "fields", tt.fields, fields)
			wantEqual(t, "flagged", len(tt.fields) > 0, change.Problems)
		})
	}
}

func TestNoIPv6(t *testing.T) {
	cfg := Config{
		NodeName: here, NoIPv6: true,
		DetectLocal: DetectClusterCIDR, ClusterCIDRs: prefixes("10.1.0.0/16", "fd00:1::/48"),
		NodePortAddresses: NodePortAddresses{All: true, Loopback: addrs("127.0.0.1", "::1")},
	}
	dual := service(model.IPv4, external(model.IPv4), func(s *model.Service) {
		s.ClusterIPs = append(s.ClusterIPs, clusterIP(model.IPv6))
		s.LoadBalancerIPs = append(s.LoadBalancerIPs, vip(model.IPv6, 1))
		s.ExternalIPs = append(s.ExternalIPs, vip(model.IPv6, 2))
		s.ExternalPolicy, s.HealthCheckNodePort = model.PolicyLocal, 32000
	})
	only := service(model.IPv6, func(s *model.Service) { s.Name = named("only"); s.ClusterIPs = addrs("fd00:96::77") })
	events := []model.Event{
		model.SetService{Service: dual}, model.SetService{Service: only},
		model.SetHostIPs{IPs: addrs("192.0.2.1", "2001:db8:2::1")},
		model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{Name: "all", Prefixes: prefixes("10.96.0.0/16", "fd00:96::/112")}},
	}
	for _, f := range model.Families {
		events = append(events, model.SetSlice{Slice: &model.Slice{
			Name: named("web-" + f.String()), Service: "web", Family: f,
			Ports:     []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
			Endpoints: []model.Endpoint{{Addr: podIP(f, 1), Node: here, Conditions: model.Ready | model.Serving}},
		}})
	}
	got := fromScratch(cfg, stateOf(events...))
	for key := range got.Frontends {
		if key.Family() != model.IPv4 {
			t.Errorf("frontend %v is planned", key)
		}
	}
	wantEqual(t, "frontends", 4, len(got.Frontends))
	wantEqual(t, "ClusterIPs", 1, len(got.ClusterIPs))
	wantEqual(t, "health checks", map[model.Name]HealthCheck{named("web"): {Service: named("web"), Port: 32000, LocalEndpoints: 1, IPv4: true}}, got.HealthChecks)
	wantEqual(t, "problems", map[model.Object][]model.Problem{}, got.Problems)
	wantEqual(t, "settings", Settings{
		IPv4: Detector{Sources: prefixes("10.1.0.0/16")}, NoIPv6: true,
		NodePortAll4: true, NodePortIPs: addrs("192.0.2.1"), LoopbackIPs: addrs("127.0.0.1"), ServiceCIDRs: prefixes("10.96.0.0/16"), MasqueradeMark: 1,
	}, got.Settings)

	state, planner := stateOf(events...), New(cfg)
	planner.Update(state, &model.Dirty{All: true})
	evidence := planner.Evidence(state, named("web"))
	wantEqual(t, "counts", EndpointCounts{Used: 1, Ready: 1}, evidence.EndpointCounts())
	for _, f := range evidence.Frontends() {
		decision := evidence.PoolDecision(f)
		wantEqual(t, "family", model.IPv4, decision.Family)
		wantEqual(t, "endpoints", 1, len(decision.Endpoints))
	}
}

func TestNodePortsOnly(t *testing.T) {
	cfg := Config{NodeName: here, NodePortsOnly: true, DetectLocal: DetectBridgeInterface, BridgeInterface: "br0", NodePortAddresses: NodePortAddresses{All: true}, KnownNodePortIPs: true}
	web := service(model.IPv4, external(model.IPv4), func(s *model.Service) {
		s.ExternalPolicy = model.PolicyLocal
		s.Ports = append(s.Ports, model.ServicePort{Name: "sctp", Protocol: model.SCTP, Port: 81, NodePort: 30081})
	})
	state := stateOf(model.SetService{Service: web}, model.SetHostIPs{IPs: addrs("192.0.2.1")},
		model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{Name: "all", Prefixes: prefixes("10.96.0.0/16")}},
		model.SetSlice{Slice: &model.Slice{
			Name: named("web-1"), Service: "web", Family: model.IPv4,
			Ports:     []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
			Endpoints: []model.Endpoint{{Addr: podIP(model.IPv4, 1), Node: here, Conditions: model.Ready | model.Serving}},
		}})
	got := fromScratch(cfg, state)
	nodePort := NodePortKey(model.IPv4, web.Ports[0].NodePort, model.TCP)
	if len(got.Frontends) != 1 || got.Frontends[nodePort] == nil {
		t.Fatalf("planned %v, want only %v", slices.Collect(maps.Keys(got.Frontends)), nodePort)
	}
	wantEqual(t, "ClusterIPs", 0, len(got.ClusterIPs))
	wantEqual(t, "settings", Settings{NodePortIPs: addrs("192.0.2.1"), MasqueradeMark: 1, NodePortsOnly: true}, got.Settings)
	if problems := got.Problems[model.Object{Kind: "Service", Namespace: "default", Name: "web"}]; len(problems) != 1 || !strings.Contains(problems[0].Reason, "30081/SCTP") {
		t.Errorf("problems %v, want one about the node port of SCTP", problems)
	}

	packet := Packet{To: Key{Addr: web.ClusterIPs[0], Port: 80, Protocol: model.TCP}}
	d := got.Decide(packet)
	wantEqual(t, "ClusterIP", []any{Pass, NodePortsOnly}, []any{d.Verdict, d.Cause})
	packet.To = Key{Addr: addrs("192.0.2.1")[0], Port: nodePort.Port, Protocol: model.TCP}
	d = got.Decide(packet)
	yes, why := d.Masquerade(podIP(model.IPv4, 1))
	wantEqual(t, "node port", []any{Forward, HasEndpoint, true, ProxyConnects}, []any{d.Verdict, d.Cause, yes, why})
}

// A proxy that connects itself has to know which endpoints keep their clients.
func TestServingMattersToTheProxy(t *testing.T) {
	one, two := &Frontend{Route: Route{Balancer: itself}, AlsoServing: []Endpoint{{}}}, &Frontend{Route: Route{Balancer: itself}}
	if one.sameRules(two) {
		t.Error("an endpoint that no longer serves goes unnoticed")
	}
	one.Route.Balancer, two.Route.Balancer = nil, nil
	if !one.sameRules(two) {
		t.Error("other modes are bothered with it")
	}
}
