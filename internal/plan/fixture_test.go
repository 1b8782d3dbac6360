package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/model"
	"sluice/internal/testkit"
)

// here is the name of this node, in zone "a".
const here = "here"

var (
	equalAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})
	defaults   = Config{NodeName: here, MasqueradeBit: 14}
)

// Texts as addresses.
var (
	addrs    = testkit.Addrs
	prefixes = testkit.Prefixes
)

// clusterIP, podIP and externalIP give a test the same addresses in either
// family.
func clusterIP(f model.Family) netip.Addr    { return numbered(f, "10.96.0.%d", "fd00:96::%x", 1) }
func podIP(f model.Family, n int) netip.Addr { return numbered(f, "10.1.0.%d", "fd00:1::%x", n) }
func vip(f model.Family, n int) netip.Addr   { return numbered(f, "198.51.100.%d", "2001:db8:1::%x", n) }
func nodeIPOf(f model.Family, n int) netip.Addr {
	return numbered(f, "192.0.2.%d", "2001:db8:2::%x", n)
}

func numbered(f model.Family, v4, v6 string, n int) netip.Addr {
	if f == model.IPv4 {
		return netip.MustParseAddr(fmt.Sprintf(v4, n))
	}
	return netip.MustParseAddr(fmt.Sprintf(v6, n))
}

// eachFamily runs a test for IPv4 and for IPv6.
func eachFamily(t *testing.T, test func(t *testing.T, f model.Family)) {
	t.Helper()
	for _, f := range model.Families {
		t.Run(f.String(), func(t *testing.T) { test(t, f) })
	}
}

func named(name string) model.Name { return model.Name{Namespace: "default", Name: name} }

func year(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }

// service is the Service default/web with one port, changed by edits.
func service(f model.Family, edits ...func(*model.Service)) *model.Service {
	s := &model.Service{
		Name:       named("web"),
		ClusterIPs: []netip.Addr{clusterIP(f)},
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// external gives a Service a frontend of each external kind.
func external(f model.Family) func(*model.Service) {
	return func(s *model.Service) {
		s.LoadBalancerIPs = []netip.Addr{vip(f, 1)}
		s.ExternalIPs = []netip.Addr{vip(f, 2)}
		s.Ports[0].NodePort = 30080
	}
}

func internalLocal(s *model.Service) { s.InternalPolicy = model.PolicyLocal }
func externalLocal(s *model.Service) { s.ExternalPolicy = model.PolicyLocal }

// slice is a slice of default/web that serves port "http" on 8080.
func slice(f model.Family, name string, endpoints ...model.Endpoint) *model.Slice {
	return &model.Slice{
		Name:      named(name),
		Service:   "web",
		Family:    f,
		Ports:     []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
		Endpoints: endpoints,
	}
}

// Conditions that an endpoint is seen in.
const (
	ready    = model.Ready | model.Serving
	draining = model.Serving | model.Terminating
	dying    = model.Terminating
	starting = model.Conditions(0)
)

// pod is an endpoint on a node: "10.1.0.<n>" or its counterpart.
func pod(f model.Family, n int, node string, c model.Conditions) model.Endpoint {
	return model.Endpoint{Addr: podIP(f, n), Node: node, Conditions: c}
}

func hinted(e model.Endpoint, zones, nodes string) model.Endpoint {
	e.Hints = &model.Hints{Zones: strings.Fields(zones), Nodes: strings.Fields(nodes)}
	return e
}

// stateOf has the node "here" in zone "a" and what the events add.
func stateOf(events ...model.Event) *model.State {
	state := model.NewState()
	var dirty model.Dirty
	state.Apply(&dirty, model.SetNode{Node: &model.Node{
		Name: here, Zone: "a", IPs: addrs("192.0.2.1", "2001:db8:2::1"),
	}})
	state.Apply(&dirty, events...)
	return state
}

// planWeb plans one Service with its slices.
func planWeb(cfg Config, svc *model.Service, slices ...*model.Slice) *Desired {
	events := []model.Event{model.SetService{Service: svc}}
	for _, s := range slices {
		events = append(events, model.SetSlice{Slice: s})
	}
	return fromScratch(cfg, stateOf(events...))
}

func fromScratch(cfg Config, state *model.State) *Desired {
	p := New(cfg)
	p.Update(state, &model.Dirty{})
	return p.Desired()
}

// frontendAt finds a frontend of port 80, or of the node port for an
// unspecified address.
func frontendAt(t *testing.T, d *Desired, ip netip.Addr) *Frontend {
	t.Helper()
	key := Key{Addr: ip, Port: 80, Protocol: model.TCP}
	if ip.IsUnspecified() {
		key.Port = 30080
	}
	f := d.Frontends[key]
	if f == nil {
		t.Fatalf("no frontend %s, there are %q", key, frontendList(d))
	}
	return f
}

// frontendList describes the frontends, sorted by key.
func frontendList(d *Desired) []string {
	var all []*Frontend
	for _, f := range d.Frontends {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *Frontend) int { return a.Key.Compare(b.Key) })
	out := []string{}
	for _, f := range all {
		out = append(out, fmt.Sprintf("%s %s %s:%s", f.Key, f.Kind, f.Service.Name, f.Port))
	}
	return out
}

// routeText is "1 2*" for pods 1 and 2 of which 2 is local, or the verdict.
func routeText(f model.Family, r *Route) string {
	if r == nil {
		return "-"
	}
	if len(r.Endpoints) == 0 {
		return r.Empty.Verdict.String()
	}
	var words []string
	for _, e := range r.Endpoints {
		ip := e.Addr().AsSlice()
		word := fmt.Sprint(ip[len(ip)-1])
		if e.Addr() != podIP(f, int(ip[len(ip)-1])) {
			word = e.Addr().String()
		}
		if e.Port() != 8080 {
			word += fmt.Sprintf(":%d", e.Port())
		}
		if e.Local {
			word += "*"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// problemList gives the problems of an object as "field: reason".
func problemList(d *Desired, object string) []string {
	var out []string
	for about, problems := range d.Problems {
		for _, p := range problems {
			if about.String() == object {
				out = append(out, p.Field+": "+p.Reason)
			}
		}
	}
	return out
}

func wantEqual(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, equalAddrs); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
