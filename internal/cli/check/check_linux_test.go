package check

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/config"
	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// settings returns those of a configuration in a mode.
func settings(t *testing.T, mode string, nodePorts ...string) *config.Settings {
	t.Helper()
	c := config.New()
	c.Mode, c.ClusterCIDR, c.NodePortAddresses = v1alpha1.ProxyMode(mode), "10.244.0.0/16", nodePorts
	s, err := config.Resolve(c, "")
	if err != nil {
		t.Fatal(err)
	}
	s.Plan.NodeName = "node1"
	return s
}

// services returns the findings about Services of a node with rules of some modes.
func services(s *config.Settings, state *model.State, inPlace ...string) []Finding {
	r := &Report{InPlace: inPlace}
	planner := plan.New(s.Plan)
	planner.Update(state, &model.Dirty{All: true})
	r.checkServices(&Options{Settings: s, State: state}, planner.Desired())
	return r.Findings
}

func has(findings []Finding, level Level, texts ...string) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool {
		for _, text := range texts {
			if !strings.Contains(f.Subject+": "+f.Text+" "+f.Remedy, text) {
				return false
			}
		}
		return f.Level == level
	})
}

// Each difference from the kube-proxy in place is found where it applies, and nowhere
// else.
func TestServicesThatWouldBeTreatedDifferently(t *testing.T) {
	plain := func() *model.Service {
		return &model.Service{
			Name: model.Name{Namespace: "default", Name: "web"}, ClusterIPs: testkit.Addrs("10.96.0.1"),
			Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}},
		}
	}
	nodePort := func(s *model.Service) { s.Ports[0].NodePort = 30080 }
	weight := uint16(3)
	for _, tt := range []struct {
		name      string
		change    func(*model.Service)
		slice     *model.Slice
		mode      string
		addresses []string
		inPlace   string
		level     Level // "" if all is fine
		want      []string
	}{
		{name: "nothing special", mode: "nftables", inPlace: "iptables"},
		{name: "algorithm", change: func(s *model.Service) { s.Algorithm, s.AlgorithmChosen = model.Maglev, true }, mode: "nftables", inPlace: "nftables",
			level: Todo, want: []string{"Service default/web", "maglev", "remove the annotation"}},
		{name: "port ranges", change: func(s *model.Service) { s.Ports[0].Ranges = []model.PortRange{{First: 10000, Last: 20000}} }, mode: "nftables", inPlace: "nftables",
			level: Todo, want: []string{"Service default/web", "the ports 10000-20000", "remove the annotation"}},
		{name: "pass-through", change: func(s *model.Service) { s.PassThrough = true }, mode: "nftables", inPlace: "iptables",
			level: Todo, want: []string{"Service default/web", "left alone", "remove the annotation"}},
		{name: "source ranges for all addresses", mode: "nftables", inPlace: "nftables", change: func(s *model.Service) {
			nodePort(s)
			s.LoadBalancerIPs, s.Filtered, s.SourceRanges = testkit.Addrs("198.18.0.1"), true, testkit.Prefixes("192.0.2.0/24")
			s.FilterAll = true
		}, level: Todo, want: []string{"Service default/web", "restrict the clients of node ports", "remove the annotation"}},
		{name: "weight", slice: &model.Slice{Name: model.Name{Namespace: "default", Name: "web-1"}, Service: "web", Weight: &weight}, mode: "nftables", inPlace: "nftables",
			level: Todo, want: []string{"EndpointSlice default/web-1", "weight 3"}},
		{name: "source ranges of one family", mode: "nftables", inPlace: "nftables", change: func(s *model.Service) {
			s.ClusterIPs = testkit.Addrs("10.96.0.1", "fd00::1")
			s.LoadBalancerIPs = testkit.Addrs("198.18.0.1", "2001:db8::1")
			s.Filtered, s.SourceRanges = true, testkit.Prefixes("192.0.2.0/24")
		}, level: Todo, want: []string{"Service default/web", "no range is of IPv6"}},
		{name: "external IP that is a load balancer IP", mode: "nftables", inPlace: "iptables", change: func(s *model.Service) {
			s.LoadBalancerIPs, s.ExternalIPs = testkit.Addrs("198.18.0.1"), testkit.Addrs("198.18.0.1")
			s.Filtered, s.SourceRanges = true, testkit.Prefixes("192.0.2.0/24")
		}, level: Todo, want: []string{"the source ranges apply"}},
		{name: "a node port beside source ranges", mode: "nftables", inPlace: "nftables", change: func(s *model.Service) {
			nodePort(s)
			s.LoadBalancerIPs, s.Filtered, s.SourceRanges = testkit.Addrs("198.18.0.1"), true, testkit.Prefixes("192.0.2.0/24")
		}, level: Note, want: []string{"source ranges", "default/web", "sluice/source-ranges-apply-to: all"}},
		{name: "node ports from iptables", change: nodePort, mode: "nftables", inPlace: "iptables",
			level: Todo, want: []string{"node ports", "default/web", "nodePortAddresses: [all]"}},
		{name: "node ports on loopback", change: nodePort, mode: "nftables", addresses: []string{"all"}, inPlace: "iptables",
			level: Note, want: []string{"127.0.0.1", "localhost"}},
		{name: "node ports from ipvs", change: nodePort, mode: "nftables", inPlace: "ipvs", level: Todo, want: []string{"node ports"}},
		{name: "node ports from nftables", change: nodePort, mode: "nftables", inPlace: "nftables"},
		{name: "node ports in iptables mode", change: nodePort, mode: "iptables", inPlace: "iptables"},
		{name: "affinity", change: func(s *model.Service) { s.Affinity = 100 }, mode: "nftables", inPlace: "nftables", level: Note, want: []string{"session affinity", "default/web"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc := plain()
			if tt.change != nil {
				tt.change(svc)
			}
			state := model.NewState()
			state.Apply(&model.Dirty{}, model.SetService{Service: svc}, model.SetHostIPs{IPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}})
			if tt.slice != nil {
				state.Apply(&model.Dirty{}, model.SetSlice{Slice: tt.slice})
			}
			found := services(settings(t, tt.mode, tt.addresses...), state, tt.inPlace)
			switch {
			case tt.level == "" && !(len(found) == 1 && found[0].Level == Fine):
				t.Errorf("found %+v", found)
			case tt.level != "" && !has(found, tt.level, tt.want...):
				t.Errorf("%q is not in %+v", tt.want, found)
			}
		})
	}
}

// Where everybody may connect beside source ranges is an address that is served.
func TestOnlyServedAddressesAreOpen(t *testing.T) {
	s := settings(t, "nftables")
	state := model.NewState()
	state.Apply(&model.Dirty{}, model.SetService{Service: &model.Service{
		Name: model.Name{Namespace: "default", Name: "web"}, ClusterIPs: testkit.Addrs("10.96.0.1"), ExternalIPs: testkit.Addrs("198.18.0.2"),
		LoadBalancerIPs: testkit.Addrs("198.18.0.1"), Filtered: true, SourceRanges: testkit.Prefixes("192.0.2.0/24"),
		Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}},
	}})
	const open = "everybody may connect"
	if found := services(s, state, "nftables"); !has(found, Note, open) {
		t.Errorf("found %+v", found)
	}
	s.Plan.ExternalIPRanges = testkit.Prefixes("203.0.113.0/24")
	if found := services(s, state, "nftables"); has(found, Note, open) || !has(found, Todo, "198.18.0.2") {
		t.Errorf("found %+v", found)
	}
}

// Without a kube-proxy in place there is nothing to be compared with.
func TestServicesAreComparedWithWhatIsThere(t *testing.T) {
	for mode, want := range map[string]string{"": "all of them would be served", "iptables": "all of them are served as by the kube-proxy in place"} {
		var inPlace []string
		if mode != "" {
			inPlace = append(inPlace, mode)
		}
		if found := services(settings(t, "nftables"), model.NewState(), inPlace...); len(found) != 1 || !has(found, Fine, want) {
			t.Errorf("%q in place: %+v", mode, found)
		}
	}
}

// Why the mode is what it is, is said.
func TestReasonOfTheMode(t *testing.T) {
	r := &Report{}
	r.checkConfiguration(&Options{Settings: settings(t, "nftables"), State: model.NewState(), ModeReason: "no mode is set"})
	if !has(r.Findings, Note, "mode: no mode is set") {
		t.Errorf("found %+v", r.Findings)
	}
}

// The kube-proxies in place are recognised by what they leave in the kernel.
func TestKubeProxiesInPlaceAreFound(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tables map[string][]string
		links  []string
		want   string
	}{
		{"nothing", map[string][]string{"ip nat": {"PREROUTING"}, "inet firewalld": {}}, []string{"lo"}, ""},
		{"nftables", map[string][]string{"ip kube-proxy": {}}, nil, "nftables"},
		{"this proxy", map[string][]string{"ip6 sluice-b": {}}, nil, "nftables"},
		{"iptables", map[string][]string{"ip nat": {"KUBE-SERVICES"}}, nil, "iptables"},
		{"iptables-legacy", map[string][]string{"iptables-legacy nat": {"KUBE-SERVICES"}}, nil, "iptables"},
		{"ipvs", map[string][]string{"ip nat": {"KUBE-SERVICES", "KUBE-LOAD-BALANCER"}}, []string{"kube-ipvs0"}, "ipvs"},
		{"ipvs of this proxy, beside iptables", map[string][]string{"ip nat": {"KUBE-SERVICES"}}, []string{"kube-ipvs0"}, "iptables,ipvs"},
		{"ipvs without its link", map[string][]string{"ip nat": {"KUBE-SERVICES"}, "ip filter": {"KUBE-IPVS-FILTER"}}, nil, "ipvs"},
		{"two", map[string][]string{"ip nat": {"KUBE-SERVICES"}, "ip kube-proxy": {}}, nil, "iptables,nftables"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := &inventory{Inventory: dataplane.Inventory{Tables: tt.tables, Links: tt.links}}
			v.detect()
			if got := strings.Join(slices.Sorted(maps.Keys(v.inPlace)), ","); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

// What changes when another mode takes over is reported, with a remedy.
func TestDifferencesOfTheModeInPlace(t *testing.T) {
	found := &inventory{inPlace: map[string]dataplane.Detection{"ipvs": {Traces: []string{"link kube-ipvs0"}, Differences: []model.Problem{
		{Object: model.Object{Kind: "kube-proxy in place"}, Reason: "no answer to ping"},
		{Object: model.Object{Kind: "IPVS scheduler", Name: "mh"}, Reason: "not used", Remedy: "annotate"},
	}}}}
	r := &Report{}
	r.reportInPlace(found, settings(t, "nftables"))
	for _, want := range [][]string{{"link kube-ipvs0"}, {"ping"}} {
		if !has(r.Findings, Note, want...) {
			t.Errorf("%q is not in %+v", want, r.Findings)
		}
	}
	if !has(r.Findings, Todo, "IPVS scheduler mh", "annotate") {
		t.Errorf("found %+v", r.Findings)
	}
	r = &Report{}
	r.reportInPlace(found, settings(t, "ipvs"))
	if !r.Ready() {
		t.Errorf("found %+v", r.Findings)
	}
}

// Other programs are recognised.
func TestOtherProgramsAreFound(t *testing.T) {
	v := &inventory{Inventory: dataplane.Inventory{Links: []string{"cilium_host"}, Tables: map[string][]string{
		"ip filter": {"cali-FORWARD", "DOCKER-USER", "ufw-before-input"}, "inet firewalld": {}, "ip nat": {"KUBE-ROUTER-SERVICES"},
	}}}
	for _, o := range others {
		if v.has(o) == "" {
			t.Errorf("%s is not found", o.name)
		}
		if by := (&inventory{Inventory: dataplane.Inventory{Tables: map[string][]string{"ip filter": {"FORWARD"}}}}).has(o); by != "" {
			t.Errorf("%s is found by %s, and is not there", o.name, by)
		}
	}
}

// Modules count as missing if they would have to be loaded.
func TestMissingModules(t *testing.T) {
	dir := t.TempDir()
	f := files(dir)
	wanted := []string{"nf_tables", "nft_nat"}
	if got := f.missingModules(wanted); got != nil {
		t.Errorf("a kernel without modules lacks %v", got)
	}
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/modules", "xnft_nat 1 0 - Live 0x0\nnf_tables 1 0 - Live 0x0\n")
	if got := f.missingModules(wanted); !slices.Equal(got, []string{"nft_nat"}) {
		t.Errorf("missing %v", got)
	}
	write("sys/module/nft_nat/refcnt", "0")
	if got := f.missingModules(wanted); got != nil {
		t.Errorf("missing %v", got)
	}
}

// What is to do comes first, and its remedy is with it.
func TestWrite(t *testing.T) {
	r := &Report{Node: "node1", Mode: "nftables", Services: 1}
	r.add(Fine, "kernel", "", "Linux 6.1 is new enough")
	r.add(Todo, "configuration", "correct it", "bogus: unknown field\x1b[31m")
	var out strings.Builder
	if err := Write(&out, r); err != nil {
		t.Fatal(err)
	}
	const want = `Switching node node1 to Sluice in nftables mode, with 1 Service
NOT READY: 1 thing to do or to decide first

TODO  configuration: bogus: unknown field\x1b[31m
        what to do: correct it

FINE  kernel: Linux 6.1 is new enough
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}
