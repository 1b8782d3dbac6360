package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/model"
)

// directly asks for direct return.
func directly(s *model.Service) { s.Direct = "sluice/forwarding" }

// directConfig is that of a node of that name.
func directConfig(node string) Config {
	cfg := defaults
	cfg.NodeName, cfg.CanDirectReturn, cfg.DirectReturn = node, true, true
	cfg.Algorithms = model.NewAlgorithms(model.SourceHash, model.Maglev)
	return cfg
}

// planDirect plans a cluster of the nodes "here", n2, n3 … for one of them.
func planDirect(cfg Config, events ...model.Event) *Desired {
	state := stateOf(events...)
	var dirty model.Dirty
	if cfg.NodeName != here {
		state.Apply(&dirty, model.SetNode{Node: &model.Node{Name: cfg.NodeName, IPs: addrs("192.0.2.77")}})
	}
	p := New(cfg)
	p.SetConfig(state, cfg)
	return p.Desired()
}

func lbKey(f model.Family) Key { return Key{Addr: vip(f, 1), Port: 80, Protocol: model.TCP} }

func sharesText(d *Direct) string {
	if d == nil {
		return ""
	}
	var out []string
	for _, n := range d.Nodes {
		out = append(out, fmt.Sprintf("%s:%d", n.Name, n.Share))
	}
	return strings.Join(out, " ")
}

// TestDirect is who answers directly, and what stays ordinary and says why.
func TestDirect(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		three := []model.Endpoint{pod(f, 1, here, ready), pod(f, 2, "n2", ready), pod(f, 3, "n2", ready)}
		weight := func(w uint16, s *model.Slice) *model.Slice { s.Weight = &w; return s }
		many := make([]model.Endpoint, MaxDirectNodes+1)
		for i := range many {
			many[i] = model.Endpoint{Addr: numberedPod(f, i), Node: fmt.Sprintf("node-%d", i), Conditions: ready}
		}
		for _, tt := range []struct {
			name    string
			edits   []func(*model.Service)
			slices  []*model.Slice
			change  func(*Config)
			shares  string // "" for none
			local   int
			byAddr  bool
			problem string
			why     string // in one word
		}{
			{name: "by endpoints", slices: []*model.Slice{slice(f, "a", three...)}, shares: "here:1 n2:2", local: 1},
			{name: "by weights", slices: []*model.Slice{weight(300, slice(f, "a", three[:2]...)), weight(100, slice(f, "b", three[2]))}, shares: "here:300 n2:400", local: 1},
			{name: "weight 0", slices: []*model.Slice{weight(0, slice(f, "a", three[0])), weight(100, slice(f, "b", three[1:]...))}, shares: "n2:200"},
			{name: "none here", slices: []*model.Slice{slice(f, "a", three[1:]...)}, shares: "n2:2"},
			{name: "no endpoint", slices: nil},
			{name: "not ready", slices: []*model.Slice{slice(f, "a", three[0], pod(f, 2, "n2", starting), pod(f, 3, "n3", draining))}, shares: "here:1", local: 1},
			{name: "all draining", slices: []*model.Slice{slice(f, "a", pod(f, 2, "n2", starting), pod(f, 3, "n3", draining))}, shares: "n3:1"},
			{name: "affinity", edits: []func(*model.Service){func(s *model.Service) { s.Affinity = 60 }}, slices: []*model.Slice{slice(f, "a", three...)}, shares: "here:1 n2:2", local: 1, byAddr: true},
			{name: "maglev", edits: []func(*model.Service){func(s *model.Service) { s.Algorithm, s.AlgorithmChosen = model.Maglev, true }}, slices: []*model.Slice{slice(f, "a", three...)}, shares: "here:1 n2:2", local: 1, byAddr: true},
			{name: "policy Local", edits: []func(*model.Service){externalLocal}, slices: []*model.Slice{slice(f, "a", three...)}, problem: "it is Local", why: "traffic-policy"},
			{name: "source ranges", edits: []func(*model.Service){func(s *model.Service) { s.Filtered, s.SourceRanges = true, prefixes("10.0.0.0/8") }}, slices: []*model.Slice{slice(f, "a", three...)}, problem: "the ranges are enforced", why: "source-ranges"},
			{name: "hints", slices: []*model.Slice{slice(f, "a", hinted(three[0], "a", ""), three[1])}, problem: "topology hints", why: "topology-hints"},
			{name: "no node", slices: []*model.Slice{slice(f, "a", three[0], pod(f, 2, "", ready))}, problem: "it is not known on which node", why: "unknown-node"},
			{name: "too many nodes", slices: []*model.Slice{slice(f, "a", many...)}, problem: "at most 500", why: "too-many-nodes"},
			{name: "off", change: func(c *Config) { c.DirectReturn = false }, slices: []*model.Slice{slice(f, "a", three...)}, problem: "switched off on this node", why: "off"},
			{name: "another mode", change: func(c *Config) { c.CanDirectReturn, c.DirectReturn = false, false }, slices: []*model.Slice{slice(f, "a", three...)}, problem: "in the proxy mode of this node", why: "mode"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				cfg := directConfig(here)
				if tt.change != nil {
					tt.change(&cfg)
				}
				svc := service(f, append([]func(*model.Service){external(f), directly}, tt.edits...)...)
				events := []model.Event{model.SetService{Service: svc}}
				for _, s := range tt.slices {
					events = append(events, model.SetSlice{Slice: s})
				}
				d := planDirect(cfg, events...)
				for _, key := range []Key{lbKey(f), {Addr: vip(f, 2), Port: 80, Protocol: model.TCP}, NodePortKey(f, 30080, model.TCP)} {
					fe := d.Frontends[key]
					if got := sharesText(fe.Direct); got != tt.shares {
						t.Fatalf("%v: nodes %q, want %q", key, got, tt.shares)
					}
					if fe.Direct == nil {
						continue
					}
					if fe.Direct != d.Frontends[lbKey(f)].Direct {
						t.Error("frontends of a port have tables of their own")
					}
					local := 0
					if r := fe.Direct.Local; r != nil {
						local = len(r.Endpoints)
						if r.ByClient() != tt.byAddr || !r.Local {
							t.Errorf("the pool of this node is %+v", r)
						}
					}
					if local != tt.local || fe.Direct.ByAddress != tt.byAddr {
						t.Errorf("%d endpoints here, by address %v; want %d, %v", local, fe.Direct.ByAddress, tt.local, tt.byAddr)
					}
				}
				if fe := d.Frontends[Key{Addr: clusterIP(f), Port: 80, Protocol: model.TCP}]; fe.Direct != nil {
					t.Error("the ClusterIP has direct return")
				}
				problems := d.Problems[model.ServiceObject(svc.Name)]
				if says := slices.ContainsFunc(problems, func(p model.Problem) bool {
					return strings.Contains(p.Reason, "no direct return") && strings.Contains(p.Reason, tt.problem) && p.Remedy != ""
				}); says != (tt.problem != "") || tt.problem == "" && len(problems) > 0 {
					t.Errorf("problems: %v, want %q", problems, tt.problem)
				}
				if counted := d.DirectFallbacks(); len(counted) > 1 || counted[tt.why] != len(counted) {
					t.Errorf("Services without direct return are counted as %v, want %q", counted, tt.why)
				}
			})
		}
	})
}

func numberedPod(f model.Family, i int) netip.Addr {
	return numbered(f, "10.9."+fmt.Sprint(i/250)+".%d", "fd00:9::"+fmt.Sprint(i/250)+":%x", i%250+1)
}

// TestDirectIsTheSameOnEveryNode plans the same random objects for each node, of which each has ejected other
// endpoints and proven other ways: who has which slot must not depend on that.
func TestDirectIsTheSameOnEveryNode(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	nodes := []string{"n1", "n2", "n3", "n4"}
	for range 40 {
		f := model.Families[rng.IntN(2)]
		var endpoints []model.Endpoint
		for i := range rng.IntN(12) {
			endpoints = append(endpoints, pod(f, i+1, nodes[rng.IntN(len(nodes))], []model.Conditions{ready, ready, draining, starting}[rng.IntN(4)]))
		}
		half := rng.IntN(len(endpoints) + 1)
		w := uint16(rng.IntN(4) * 50)
		a, b := slice(f, "a", endpoints[:half]...), slice(f, "b", endpoints[half:]...)
		a.Weight = &w
		eject := true
		svc := service(f, external(f), directly, func(s *model.Service) { s.Eject = &eject })
		var first *Direct
		for i, node := range nodes {
			cfg := directConfig(node)
			cfg.CanEject = true
			events := []model.Event{model.SetService{Service: svc}, model.SetSlice{Slice: a}, model.SetSlice{Slice: b},
				model.SetPaths{Paths: []model.Path{{Addr: nodeIPOf(f, 10+rng.IntN(4)), State: model.PathState(rng.IntN(int(model.NumPathStates)))}}}}
			for j, n := range nodes {
				if n != node {
					events = append(events, model.SetPeer{Peer: &model.Peer{Name: n, IPs: []netip.Addr{nodeIPOf(f, 10+j)}}})
				}
			}
			if len(endpoints) > 0 {
				e := endpoints[rng.IntN(len(endpoints))]
				events = append(events, model.SetEjected{Service: svc.Name, Endpoints: []model.Ejection{{Endpoint: netip.AddrPortFrom(e.Addr, 8080), Protocol: model.TCP}}})
			}
			got := planDirect(cfg, events...).Frontends[lbKey(f)].Direct
			if i == 0 {
				first = got
				continue
			}
			if (got == nil) != (first == nil) || got != nil && (sharesText(got) != sharesText(first) || !slices.Equal(got.Slots(), first.Slots())) {
				t.Fatalf("%s: %q, and n1 has %q", node, sharesText(got), sharesText(first))
			}
		}
	}
}

// TestDirectSlots: only nodes with endpoints have slots, in proportion to their shares, and few slots move
// when a node leaves or a share changes.
func TestDirectSlots(t *testing.T) {
	counts := func(d *Direct) map[string]int {
		out := map[string]int{}
		for _, at := range d.Slots() {
			out[d.Nodes[at].Name]++
		}
		return out
	}
	named := func(d *Direct) (out []string) {
		for _, at := range d.Slots() {
			out = append(out, d.Nodes[at].Name)
		}
		return out
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		d := &Direct{}
		total := 0
		for i := range 1 + rng.IntN(40) {
			n := NodeShare{fmt.Sprintf("node-%02d", i), uint32(1 + rng.IntN(5))}
			total += int(n.Share)
			d.Nodes = append(d.Nodes, n)
		}
		got := counts(d)
		if len(got) != len(d.Nodes) {
			t.Fatalf("%d of %d nodes have slots", len(got), len(d.Nodes))
		}
		for _, n := range d.Nodes {
			want := float64(n.Share) / float64(total) * DirectSlots
			if has := float64(got[n.Name]); has < want*0.75-2 || has > want*1.25+2 {
				t.Errorf("%s has %v slots of %v by its share, among %v", n.Name, has, want, d.Nodes)
			}
		}
		if len(d.Nodes) < 2 {
			continue
		}
		gone := rng.IntN(len(d.Nodes))
		less := &Direct{Nodes: slices.Delete(slices.Clone(d.Nodes), gone, gone+1)}
		before, after := named(d), named(less)
		moved := 0
		for i := range before {
			if before[i] != d.Nodes[gone].Name && before[i] != after[i] {
				moved++
			}
		}
		if moved > DirectSlots*15/100 {
			t.Errorf("%d slots of other nodes moved when %v left %v", moved, d.Nodes[gone], d.Nodes)
		}
	}
}

// TestDirectSlotOfClients: the ports of a client are spread, unless its address decides alone.
func TestDirectSlotOfClients(t *testing.T) {
	d := &Direct{Nodes: []NodeShare{{"a", 1}, {"b", 1}}}
	seen := map[string]int{}
	for port := range 2000 {
		at := netip.AddrPortFrom(netip.MustParseAddr("203.0.113.9"), uint16(20000+port))
		seen[d.Node(at)]++
	}
	if len(seen) != 2 || seen["a"] < 800 || seen["b"] < 800 {
		t.Errorf("2000 ports of a client go to %v", seen)
	}
	d.ByAddress = true
	one := d.Node(netip.MustParseAddrPort("203.0.113.9:1"))
	for port := range 100 {
		if got := d.Node(netip.AddrPortFrom(netip.MustParseAddr("203.0.113.9"), uint16(port))); got != one {
			t.Fatalf("with affinity, port %d goes to %s, and another to %s", port, got, one)
		}
	}
}

// TestWay is where a client goes, as the ways to nodes are.
func TestWay(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		client := numbered(f, "203.0.113.%d", "2001:db8:9::%x", 9)
		svc := service(f, external(f), directly)
		for _, tt := range []struct {
			name     string
			nodes    []string // with an endpoint
			state    model.PathState
			port     uint16
			want     DirectWay
			ordinary bool
		}{
			{name: "here", nodes: []string{here}, want: DirectWay{Node: here, Here: true}},
			{name: "proven", nodes: []string{"n2"}, state: model.PathProven, want: DirectWay{Node: "n2", State: model.PathProven}},
			{name: "silent", nodes: []string{"n2"}, state: model.PathSilent, want: DirectWay{Node: "n2", State: model.PathSilent, Ordinary: true}},
			{name: "unknown node", nodes: []string{"n9"}, want: DirectWay{Node: "n9", Ordinary: true}},
			{name: "any port", nodes: []string{"n2", here}, state: model.PathProven, want: DirectWay{}},
			{name: "any port, one silent", nodes: []string{"n2", here}, state: model.PathSilent, want: DirectWay{Ordinary: true, Others: []string{"n2"}}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				var endpoints []model.Endpoint
				for i, n := range tt.nodes {
					endpoints = append(endpoints, pod(f, i+1, n, ready))
				}
				d := planDirect(directConfig(here), model.SetService{Service: svc}, model.SetSlice{Slice: slice(f, "a", endpoints...)},
					model.SetPeer{Peer: &model.Peer{Name: "n2", IPs: []netip.Addr{nodeIPOf(f, 2)}}},
					model.SetPaths{Paths: []model.Path{{Addr: nodeIPOf(f, 2), State: tt.state}}})
				c := d.Decide(Packet{Source: client, SourcePort: tt.port, To: lbKey(f)})
				got, decides := c.Way()
				if !decides || got.Node != tt.want.Node || got.Here != tt.want.Here || got.State != tt.want.State || got.Ordinary != tt.want.Ordinary || !slices.Equal(got.Others, tt.want.Others) {
					t.Errorf("the way is %+v (%v), want %+v", got, decides, tt.want)
				}
				if masqueraded, why := c.Masquerade(netip.Addr{}); masqueraded != tt.want.Ordinary || why.Text() == "" {
					t.Errorf("masqueraded: %v, because %s", masqueraded, why.Text())
				}
				for _, from := range []Client{PodClient, NodeClient} {
					inside := d.Decide(Packet{From: from, To: lbKey(f)})
					if _, decides := inside.Way(); decides {
						t.Errorf("direct return decides about clients of kind %v", from)
					}
				}
			})
		}
	})
}

// TestDirectFollowsChanges: what a planner keeps by changes is what another plans afresh.
func TestDirectFollowsChanges(t *testing.T) {
	f := model.IPv4
	state, cfg := stateOf(), directConfig(here)
	p := New(cfg)
	p.SetConfig(state, cfg)
	peer := func(n int) model.Event {
		return model.SetPeer{Peer: &model.Peer{Name: fmt.Sprintf("n%d", n), IPs: []netip.Addr{nodeIPOf(f, n)}}}
	}
	for _, e := range []model.Event{
		model.SetService{Service: service(f, external(f), directly)},
		model.SetSlice{Slice: slice(f, "a", pod(f, 1, here, ready), pod(f, 2, "n2", ready))},
		peer(2), peer(3),
		model.SetPaths{Paths: []model.Path{{Addr: nodeIPOf(f, 2), State: model.PathProven}, {Addr: nodeIPOf(f, 3), State: model.PathNoMAC}}},
		model.SetSlice{Slice: slice(f, "a", pod(f, 1, here, ready), pod(f, 3, "n3", ready))},
		model.DeletePeer{Name: "n2"},
		model.SetPaths{Paths: []model.Path{{Addr: nodeIPOf(f, 2)}}},
		model.SetService{Service: service(f, external(f))},
	} {
		var dirty model.Dirty
		state.Apply(&dirty, e)
		p.Update(state, &dirty)
		fresh := New(cfg)
		fresh.SetConfig(state, cfg)
		if !p.Desired().Settings.same(&fresh.Desired().Settings) {
			t.Errorf("after %T: %+v, and afresh %+v", e, p.Desired().Settings.DirectReturn, fresh.Desired().Settings.DirectReturn)
		}
		for key, want := range fresh.Desired().Frontends {
			if got := p.Desired().Frontends[key]; got == nil || !got.same(want) {
				t.Errorf("after %T, %v: %+v, and afresh %+v", e, key, got, want)
			}
		}
	}
}

// TestOldestServicesGetDirectReturn: there are not more tables than allowed.
func TestOldestServicesGetDirectReturn(t *testing.T) {
	var events []model.Event
	ports := MaxDirectTables/2 + 1
	for i := range 2 {
		svc := maglevService("n", fmt.Sprintf("s%d", i), 2020+i, ports)
		svc.Algorithm, svc.AlgorithmChosen = model.Random, false
		svc.Direct, svc.ClusterIPs, svc.ExternalIPs = "sluice/forwarding", addrs(fmt.Sprintf("10.96.1.%d", i)), []netip.Addr{vip(model.IPv4, 3+i)}
		events = append(events, model.SetService{Service: svc})
	}
	d := planDirect(directConfig(here), events...)
	for i, want := range []int{0, 1} {
		if got := d.Problems[model.ServiceObject(model.Name{Namespace: "n", Name: fmt.Sprintf("s%d", i)})]; len(got) != want {
			t.Errorf("Service %d has problems %v", i, got)
		}
	}
}
