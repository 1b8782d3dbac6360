package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
)

func weighed(s *model.Slice, weight uint16) *model.Slice {
	s.Weight = &weight
	return s
}

// poolText writes a pool as "1 2*3": endpoint 1, and endpoint 2 with weight 3.
func poolText(f model.Family, list []Endpoint) string {
	var words []string
	for n := 1; n < 10; n++ {
		for _, e := range list {
			if e.Addr() != podIP(f, n) {
				continue
			}
			word := fmt.Sprint(n)
			if e.Weight != 0 {
				word += fmt.Sprintf("*%d", e.Weight)
			}
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

func TestWeights(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		one := func(n int, node string, c model.Conditions) *model.Slice {
			return slice(f, fmt.Sprintf("web-%d", n), pod(f, n, node, c))
		}
		hintedTo := func(s *model.Slice, zone string) *model.Slice {
			s.Endpoints[0] = hinted(s.Endpoints[0], zone, "")
			return s
		}
		tests := []struct {
			name                   string
			slices                 []*model.Slice
			cluster, local, beside string
			ignored                bool // weights, with a Problem
		}{
			{"none", []*model.Slice{one(1, here, ready), one(2, "", ready)}, "1 2", "1", "", false},
			{"different ones", []*model.Slice{weighed(one(1, here, ready), 30), weighed(one(2, "", ready), 10)}, "1*30 2*10", "1", "", false},
			{"the same for all means none", []*model.Slice{weighed(one(1, "", ready), 7), weighed(one(2, "", ready), 7)}, "1 2", "", "", false},
			{"one slice has none", []*model.Slice{weighed(one(1, "", ready), 5), one(2, "", ready)}, "1*5 2*100", "", "", false},
			{"0 gets nothing new", []*model.Slice{weighed(one(1, here, ready), 0), one(2, here, ready), one(3, "", ready)}, "2 3", "2", "1", false},
			{"0 on this node only", []*model.Slice{weighed(one(1, here, ready), 0), one(2, "", ready)}, "2", "", "1", false},
			{"all 0", []*model.Slice{weighed(one(1, here, ready), 0), weighed(one(2, "", ready), 0)}, "1 2", "1", "", true},
			{"all ready ones 0", []*model.Slice{weighed(one(1, "", ready), 0), one(2, "", draining)}, "1", "", "2", true},
			{"0 among terminating ones", []*model.Slice{weighed(one(1, "", draining), 0), one(2, "", draining)}, "2", "", "1", false},
			{"0 of one that is not ready", []*model.Slice{weighed(one(1, "", starting), 0), one(2, "", ready)}, "2", "", "", false},
			{"all 0 and nothing ready", []*model.Slice{weighed(one(1, "", starting), 0)}, "", "", "", false},
			{"hints of drained endpoints do not count", []*model.Slice{weighed(hintedTo(one(1, "", ready), "a"), 0), hintedTo(one(2, "", ready), "b")}, "2", "", "1", false},
			{"the greatest of two slices", []*model.Slice{weighed(slice(f, "web-a", pod(f, 1, "", ready)), 0), weighed(slice(f, "web-b", pod(f, 1, "", ready)), 9), one(2, "", ready)}, "1*9 2*100", "", "", false},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				events := []model.Event{model.SetService{Service: service(f, external(f), externalLocal)}}
				for _, s := range tt.slices {
					events = append(events, model.SetSlice{Slice: s})
				}
				p := New(defaults)
				p.Update(stateOf(events...), &model.Dirty{All: true})
				clusterIP := p.Desired().Frontends[Key{Addr: clusterIP(f), Port: 80, Protocol: model.TCP}]
				nodePort := p.Desired().Frontends[NodePortKey(f, 30080, model.TCP)]
				if diff := cmp.Diff([]string{tt.cluster, tt.local, tt.beside},
					[]string{poolText(f, clusterIP.Route.Endpoints), poolText(f, nodePort.Outside.Endpoints), poolText(f, clusterIP.AlsoServing)}); diff != "" {
					t.Errorf("cluster, local, beside (-want +got):\n%s", diff)
				}
				problems := p.Desired().Problems[model.Object{Kind: "Service", Namespace: "default", Name: "web"}]
				if got := strings.Contains(fmt.Sprint(problems), "weight 0; weights are ignored"); got != tt.ignored || len(problems) > 1 {
					t.Errorf("problems: %v", problems)
				}
			})
		}
	})
}

// An endpoint of weight 0 is not reported as healthy, so that a load balancer
// sends new connections elsewhere.
func TestDrainedIsNotHealthy(t *testing.T) {
	f := model.IPv4
	svc := service(f, external(f), externalLocal, func(s *model.Service) { s.HealthCheckNodePort = 32000 })
	state := stateOf(model.SetService{Service: svc},
		model.SetSlice{Slice: weighed(slice(f, "web-1", pod(f, 1, here, ready)), 0)},
		model.SetSlice{Slice: slice(f, "web-2", pod(f, 2, "far", ready))})
	p := New(defaults)
	p.Update(state, &model.Dirty{All: true})
	if n := p.Desired().HealthChecks[svc.Name].LocalEndpoints; n != 0 {
		t.Errorf("%d local endpoints, want 0", n)
	}
	evidence := p.Evidence(state, svc.Name)
	pool := evidence.PoolDecision(p.Desired().Frontends[Key{Addr: clusterIP(f), Port: 80, Protocol: model.TCP}])
	if got := pool.Endpoints[0]; got.InCluster != Drained || got.InLocal != Drained {
		t.Errorf("it is not in the pools because %v and %v, want %v", got.InCluster, got.InLocal, Drained)
	}
}

func TestAlgorithmOfPools(t *testing.T) {
	f := model.IPv4
	many := func(n int) []model.Event {
		s := slice(f, "web-1")
		for i := range n {
			s.Endpoints = append(s.Endpoints, pod(f, i%250+1, here, ready))
			s.Endpoints[i].Addr = numbered(f, fmt.Sprintf("10.%d.%%d.%d", i/10000+1, i%250), "", i/250%250)
		}
		return []model.Event{model.SetSlice{Slice: s}}
	}
	manyPorts := func(s *model.Service) {
		for i := range 100 {
			s.Ports = append(s.Ports, model.ServicePort{Name: fmt.Sprint("p", i), Protocol: model.TCP, Port: uint16(1000 + i)})
		}
	}
	tests := []struct {
		name      string
		available model.Algorithms
		asked     model.Algorithm
		edit      func(*model.Service)
		endpoints int
		want      model.Algorithm
		problem   string
	}{
		{"random by default", 0, model.Random, nil, 3, model.Random, ""},
		{"available", model.NewAlgorithms(model.RoundRobin), model.RoundRobin, nil, 3, model.RoundRobin, ""},
		{"not available", model.NewAlgorithms(model.RoundRobin), model.Maglev, nil, 3, model.Random,
			"maglev is not available in the proxy mode of this node; random is used (choose one of these: random, round-robin; or another proxy mode)"},
		{"maglev", model.NewAlgorithms(model.Maglev), model.Maglev, nil, 1000, model.Maglev, ""},
		{"too many endpoints", model.NewAlgorithms(model.Maglev), model.Maglev, nil, 1001, model.Random,
			"port http has 1001 endpoints, and maglev is for at most 1000; random is used"},
		{"too many ports", model.NewAlgorithms(model.Maglev), model.Maglev, manyPorts, 3, model.Random,
			"maglev is not available: it would take 101 lookup tables, one for each port and family, and the Services of a namespace have at most 32; random is used"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := service(f, internalLocal, func(s *model.Service) { s.Algorithm = tt.asked })
			if tt.edit != nil {
				tt.edit(svc)
			}
			cfg := defaults
			cfg.Algorithms = tt.available
			p := New(cfg)
			p.Update(stateOf(append(many(tt.endpoints), model.SetService{Service: svc})...), &model.Dirty{All: true})
			if got := p.Desired().Frontends[Key{Addr: clusterIP(f), Port: 80, Protocol: model.TCP}].Route.Algorithm; got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			problems := p.Desired().Problems[model.Object{Kind: "Service", Namespace: "default", Name: "web"}]
			if text := fmt.Sprint(problems); tt.problem == "" && len(problems) > 0 || !strings.Contains(text, tt.problem) || len(problems) > 1 {
				t.Errorf("problems: %v, want %q", problems, tt.problem)
			}
		})
	}
}

// IPVS cannot lead a packet of the node to the node itself: the table chooses where the
// node is an endpoint, also from when that is known.
func TestNodeIsNoEndpointOfIPVS(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		cfg := defaults
		cfg.Balancer = Balancer{Name: "IPVS", Default: "rr"}
		p := New(cfg)
		state := stateOf(model.SetService{Service: service(f)},
			model.SetSlice{Slice: slice(f, "web-1", pod(f, 1, here, ready), pod(f, 2, "far", ready))})
		choice := func() string {
			return p.Desired().Frontends[Key{Addr: clusterIP(f), Port: 80, Protocol: model.TCP}].Route.AlgorithmText()
		}
		p.Update(state, &model.Dirty{All: true})
		if got := choice(); got != "IPVS rr" {
			t.Errorf("algorithm %q, want IPVS rr", got)
		}
		var dirty model.Dirty
		state.Apply(&dirty, model.SetHostIPs{IPs: []netip.Addr{podIP(f, 1)}})
		p.Update(state, &dirty)
		if got := choice(); got != "random" {
			t.Errorf("algorithm %q for an endpoint with the node's address, want random", got)
		}
	})
}

// Only IPVS counts connections, so that this is reported, as long as it is so.
func TestNodeIsNoEndpointOfLeastConnections(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		cfg := defaults
		cfg.Balancer = Balancer{Name: "IPVS", Default: "rr"}
		cfg.Algorithms = model.NewAlgorithms(model.LeastConnections)
		p := New(cfg)
		svc := service(f)
		svc.Algorithm, svc.AlgorithmChosen = model.LeastConnections, true
		state := stateOf(model.SetService{Service: svc},
			model.SetSlice{Slice: slice(f, "web-1", pod(f, 1, here, ready), pod(f, 2, "far", ready))})
		check := func(algorithm string, problems int) {
			t.Helper()
			if got := p.Desired().Frontends[Key{Addr: clusterIP(f), Port: 80, Protocol: model.TCP}].Route.AlgorithmText(); got != algorithm {
				t.Errorf("algorithm %s, want %s", got, algorithm)
			}
			if got := p.Desired().Problems[model.Object{Kind: "Service", Namespace: "default", Name: "web"}]; len(got) != problems {
				t.Errorf("problems: %v, want %d", got, problems)
			}
		}
		var dirty model.Dirty
		host := func(ips ...netip.Addr) {
			state.Apply(&dirty, model.SetHostIPs{IPs: ips})
			p.Update(state, &dirty)
			dirty = model.Dirty{}
		}
		p.Update(state, &model.Dirty{All: true})
		check("IPVS least-connections", 0)
		host(podIP(f, 1))
		check("random", 1)
		host(podIP(f, 7))
		check("IPVS least-connections", 0)
	})
}

// How the kernel's balancer chooses by default can change while the proxy runs.
func TestBalancerChanges(t *testing.T) {
	cfg := defaults
	cfg.Balancer = Balancer{Name: "IPVS", Default: "rr"}
	p := New(cfg)
	state := stateOf(model.SetService{Service: service(model.IPv4)},
		model.SetSlice{Slice: slice(model.IPv4, "web-1", pod(model.IPv4, 1, here, ready))})
	p.Update(state, &model.Dirty{All: true})
	if c := p.SetConfig(state, cfg); !c.Empty() {
		t.Errorf("the same configuration is a change: %+v", c)
	}
	cfg.Balancer.Default = "sh"
	c := p.SetConfig(state, cfg)
	if len(c.Set) == 0 || len(c.Set) != len(p.Desired().Frontends) {
		t.Fatalf("%d of %d frontends change", len(c.Set), len(p.Desired().Frontends))
	}
	for _, f := range c.Set {
		if got := f.Route.AlgorithmText(); got != "IPVS sh" {
			t.Errorf("%s: %s, want IPVS sh", f.Key, got)
		}
	}
}
