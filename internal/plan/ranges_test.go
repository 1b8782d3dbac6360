package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/model"
)

// inMode is a configuration in which ranges are served.
func inMode(edit func(*Config)) Config {
	cfg := defaults
	cfg.PortRanges = true
	cfg.Algorithms = model.NewAlgorithms(model.RoundRobin, model.SourceHash, model.Maglev)
	if edit != nil {
		edit(&cfg)
	}
	return cfg
}

func withRange(first, last uint16) func(*model.Service) {
	return func(s *model.Service) { s.Ports[0].Ranges = []model.PortRange{{First: first, Last: last}} }
}

func rangeKey(ip netip.Addr, first, last uint16) Key {
	return Key{Addr: ip, Port: first, Last: last, Protocol: model.TCP}
}

func TestRangesKeepThePort(t *testing.T) {
	for _, f := range model.Families {
		svc := service(f, external(f), withRange(10000, 20000), externalLocal)
		more := slice(f, "more", pod(f, 1, "", ready))
		more.Ports[0].Port = 9090 // pod 1 twice: for a range it is one endpoint
		d := planWeb(inMode(nil), svc, slice(f, "s", pod(f, 1, "", ready), pod(f, 2, here, ready), pod(f, 3, "", draining)), more)
		for i, ip := range []netip.Addr{clusterIP(f), vip(f, 1), vip(f, 2)} {
			r := d.Frontends[rangeKey(ip, 10000, 20000)]
			if r == nil {
				t.Fatalf("no range at %s, there are %q", ip, frontendList(d))
			}
			wantEqual(t, "the pool", "1:0 2:0*", routeText(f, &r.Route))
			wantEqual(t, "the text", r.Kind.String()+" "+netip.AddrPortFrom(ip, 10000).String()+"-20000/TCP", r.Text())
			if r.Masquerade != frontendAt(t, d, ip).Masquerade || (r.Outside != nil) != (i > 0) {
				t.Errorf("%s is masqueraded or split in another way than its port", r.Text())
			}
			chosen := netip.AddrPortFrom(podIP(f, 1), 12345)
			if !r.Offers(r.TargetOf(12345, chosen)) || r.Offers(r.TargetOf(12346, chosen)) || !r.Serves(r.TargetOf(7, netip.AddrPortFrom(podIP(f, 3), 7))) {
				t.Errorf("%s offers something else than the port that the client chose", r.Text())
			}
			if got := r.Route.Endpoints[0].At(12345); got != chosen {
				t.Errorf("a connection to 12345 gets to %s", got)
			}
		}
		if _, found := d.Lookup(Key{Addr: unspecified(f), Port: 10000, Protocol: model.TCP}, func(netip.Addr) bool { return true }); found {
			t.Error("a node port is a range")
		}
	}
}

func TestLookupOfRanges(t *testing.T) {
	f := model.IPv4
	d := planWeb(inMode(nil), service(f, func(s *model.Service) {
		s.Ports[0].Ranges = []model.PortRange{{First: 79, Last: 90}, {First: 91, Last: 91}, {First: 65000, Last: 65535}}
	}), slice(f, "s", pod(f, 1, "", ready)))
	for port, want := range map[uint16]string{1: "", 78: "", 79: "79-90", 80: "80", 81: "79-90", 90: "79-90", 91: "91-91", 92: "", 64999: "", 65000: "65000-65535", 65535: "65000-65535"} {
		got, found := d.Lookup(Key{Addr: clusterIP(f), Port: port, Protocol: model.TCP}, nil)
		if found != (want != "") || found && got.PortText() != want {
			t.Errorf("port %d meets %v, want %q", port, got, want)
		}
	}
	if _, found := d.Lookup(Key{Addr: clusterIP(f), Port: 85, Protocol: model.UDP}, nil); found {
		t.Error("a range answers another protocol")
	}
}

func TestRangesThatAreNotServed(t *testing.T) {
	f := model.IPv4
	for name, tt := range map[string]struct {
		cfg  Config
		edit func(*model.Service)
		want string
	}{
		"the mode":    {defaults, nil, "not served in the proxy mode of this node"},
		"affinity":    {inMode(nil), func(s *model.Service) { s.Affinity = 60 }, "not served with session affinity"},
		"maglev":      {inMode(nil), func(s *model.Service) { s.Algorithm, s.AlgorithmChosen = model.Maglev, true }, "not served with maglev"},
		"by default":  {inMode(func(c *Config) { c.DefaultAlgorithm = model.Maglev }), nil, "not served with maglev"},
		"source-hash": {inMode(nil), func(s *model.Service) { s.Algorithm, s.AlgorithmChosen = model.SourceHash, true }, ""},
	} {
		edits := []func(*model.Service){withRange(10, 20)}
		if tt.edit != nil {
			edits = append(edits, tt.edit)
		}
		d := planWeb(tt.cfg, service(f, edits...), slice(f, "s", pod(f, 1, "", ready)))
		problems := strings.Join(problemList(d, "Service default/web"), "\n")
		_, served := d.Frontends[rangeKey(clusterIP(f), 10, 20)]
		if served != (tt.want == "") || !strings.Contains(problems, tt.want) || tt.want == "" && problems != "" {
			t.Errorf("%s: served %t, problems %q, want %q", name, served, problems, tt.want)
		}
		frontendAt(t, d, clusterIP(f)) // the rest works
	}
}

// everywhere is a configuration with node ports at all addresses of the node.
var everywhere = inMode(func(c *Config) { c.NodePortAddresses.All = true })

// Of ranges that overlap one is served, and who wins and loses changes with the Services.
func TestOverlappingRanges(t *testing.T) {
	f := model.IPv4
	shared := vip(f, 1)
	claim := func(name string, y int, first, last uint16) *model.Service {
		s := service(f, withRange(first, last))
		s.Name, s.Created, s.ExternalIPs = named(name), year(y), []netip.Addr{shared}
		s.ClusterIPs = numbers(f, y)
		s.Ports[0].Port = uint16(y)
		return s
	}
	a, b, c := claim("a", 2020, 100, 200), claim("b", 2021, 150, 250), claim("c", 2022, 240, 300)
	state := stateOf(model.SetService{Service: a}, model.SetService{Service: b}, model.SetService{Service: c})
	p := New(everywhere)
	p.Update(state, &model.Dirty{})
	check := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, k := range p.Desired().Ranges[Key{Addr: shared, Protocol: model.TCP}] {
			got = append(got, k.PortText()+" "+p.Desired().Frontends[k].Service.Name)
		}
		wantEqual(t, what, want, got)
		again := fromScratch(everywhere, state)
		wantEqual(t, what+", planned afresh", frontendList(again), frontendList(p.Desired()))
		wantEqual(t, what+", problems", again.Problems, p.Desired().Problems)
		wantEqual(t, what+", ranges", again.Ranges, p.Desired().Ranges)
	}
	update := func(e model.Event) {
		var dirty model.Dirty
		state.Apply(&dirty, e)
		p.Update(state, &dirty)
	}
	check("of three", "100-200 a", "240-300 c")
	wantEqual(t, "b is told", []string{portsField + ": ExternalIP " + shared.String() +
		":150-250/TCP is not served: it overlaps 100-200 of Service default/a, which is older or, if they are of one age, first by name"},
		problemList(p.Desired(), "Service default/b"))
	update(model.DeleteService{Name: a.Name})
	check("without a", "150-250 b")
	update(model.SetService{Service: a})
	check("with a again", "100-200 a", "240-300 c")

	single := claim("single", 2023, 7, 7)
	single.Ports[0].Port, single.Ports[0].Ranges = 120, nil
	update(model.SetService{Service: single})
	check("with a single port", "100-200 a", "240-300 c")
	wantEqual(t, "a is told", []string{portsField + ": ExternalIP " + shared.String() +
		":100-200/TCP is served without port 120, which belongs to Service default/single: a single port goes before a range"},
		problemList(p.Desired(), "Service default/a"))
	update(model.DeleteService{Name: single.Name})
	check("without the single port", "100-200 a", "240-300 c")
	wantEqual(t, "a has its ports again", []string(nil), problemList(p.Desired(), "Service default/a"))

	// Node ports go first where they answer.
	single.Ports[0].Port, single.Ports[0].NodePort = 9, 130
	update(model.SetService{Service: single})
	wantEqual(t, "node ports answer elsewhere", []string(nil), problemList(p.Desired(), "Service default/a"))
	update(model.SetHostIPs{IPs: []netip.Addr{shared}})
	wantEqual(t, "node ports answer there", []string{portsField + ": ExternalIP " + shared.String() +
		":100-200/TCP is served without port 130, which is a node port of Service default/single: a node port goes before a range"},
		problemList(p.Desired(), "Service default/a"))
	check("with a node port", "100-200 a", "240-300 c")
	update(model.SetHostIPs{})
	wantEqual(t, "they no longer do", []string(nil), problemList(p.Desired(), "Service default/a"))
}

// What is decided about some of the ranges at an address is what would be decided about all.
func TestRangesFollowChanges(t *testing.T) {
	f, shared, random := model.IPv4, vip(model.IPv4, 1), rand.New(rand.NewPCG(1, 2))
	state, p := stateOf(), New(everywhere)
	p.Update(state, &model.Dirty{})
	var dirty model.Dirty
	for step := range 400 {
		n := 1 + random.IntN(20)
		s := service(f)
		s.Name, s.Created, s.ExternalIPs, s.ClusterIPs = named(fmt.Sprintf("s%02d", n)), year(2000+random.IntN(4)), []netip.Addr{shared}, numbers(f, n)
		s.Ports[0].Port, s.Ports[0].NodePort = uint16(1+random.IntN(100)), uint16(random.IntN(100))
		if random.IntN(10) == 0 { // the address becomes the node's own, or no longer is
			hosts := []netip.Addr{shared, vip(f, 2)}
			state.Apply(&dirty, model.SetHostIPs{IPs: hosts[random.IntN(2):]})
		}
		for range random.IntN(4) {
			first := uint16(1 + random.IntN(100))
			s.Ports[0].Ranges = append(s.Ports[0].Ranges, model.PortRange{First: first, Last: first + uint16(random.IntN(12))})
		}
		if random.IntN(4) == 0 {
			state.Apply(&dirty, model.DeleteService{Name: s.Name})
		} else {
			state.Apply(&dirty, model.SetService{Service: s})
		}
		if random.IntN(3) == 0 {
			continue // several at once
		}
		p.Update(state, &dirty)
		dirty = model.Dirty{}
		again := fromScratch(everywhere, state)
		wantEqual(t, "frontends", frontendList(again), frontendList(p.Desired()))
		wantEqual(t, "ranges", again.Ranges, p.Desired().Ranges)
		wantEqual(t, "problems", again.Problems, p.Desired().Problems)
		if t.Failed() {
			t.Fatalf("after step %d", step)
		}
	}
}

func numbers(f model.Family, n int) []netip.Addr {
	if f == model.IPv4 {
		return []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)})}
	}
	return nil
}
