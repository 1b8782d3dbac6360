package diff

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

func key(s string) plan.Key {
	at := netip.MustParseAddrPort(s)
	return plan.Key{Addr: at.Addr(), Port: at.Port(), Protocol: model.TCP}
}

func pool(endpoints ...string) (out []plan.Endpoint) {
	for _, e := range endpoints {
		addr, local := strings.CutSuffix(e, " here")
		out = append(out, plan.Endpoint{AddrPort: netip.MustParseAddrPort(addr), Local: local})
	}
	return out
}

func desired(edits ...func(*plan.Desired)) *plan.Desired {
	d := &plan.Desired{Frontends: map[plan.Key]*plan.Frontend{}, ClusterIPs: map[netip.Addr]struct{}{}}
	d.Frontends[key("10.96.0.1:80")] = &plan.Frontend{
		Key: key("10.96.0.1:80"), Service: model.Name{Namespace: "default", Name: "web"}, Port: "http",
		Route: plan.Route{Endpoints: pool("10.244.0.1:80", "10.244.0.2:80")},
	}
	for _, edit := range edits {
		edit(d)
	}
	return d
}

func web(edit func(*plan.Frontend)) func(*plan.Desired) {
	return func(d *plan.Desired) { edit(d.Frontends[key("10.96.0.1:80")]) }
}

const (
	changed = "Frontends: 0 added, 0 removed, 1 changed\n~ default/web port http: ClusterIP 10.96.0.1:80/TCP\n    "
	node    = "Frontends: 0 added, 0 removed, 0 changed\nNode\n~ "
)

func TestDifferences(t *testing.T) {
	usual := func(*plan.Desired) {}
	prefix := netip.MustParsePrefix
	bad := func(reasons ...string) func(*plan.Desired) {
		return func(d *plan.Desired) {
			d.Problems = map[model.Object][]model.Problem{}
			object := model.Object{Kind: "Service", Namespace: "a", Name: "b"}
			for _, reason := range reasons {
				d.Problems[object] = append(d.Problems[object], model.Problem{Object: object, Reason: reason, Remedy: "mend it"})
			}
		}
	}
	direct := web(func(f *plan.Frontend) {
		f.Direct = &plan.Direct{Nodes: []plan.NodeShare{{Name: "n2", Share: 1}, {Name: "n3", Share: 2}}}
	})
	clusterIP := func(d *plan.Desired) { d.ClusterIPs[netip.MustParseAddr("10.96.0.1")] = struct{}{} }
	tests := []struct {
		name     string
		old, new func(*plan.Desired)
		want     string
	}{
		{"none", usual, usual, "No difference.\n"},
		{"a frontend comes", func(d *plan.Desired) { clear(d.Frontends) }, usual,
			"Frontends: 1 added, 0 removed, 0 changed\n+ default/web port http: ClusterIP 10.96.0.1:80/TCP\n    endpoints: 10.244.0.1:80, 10.244.0.2:80\n"},
		{"direct return comes", usual, direct, changed + "direct return: nodes n2 (share 1), n3 (share 2) answer directly, by the client's address and port, " +
			"was none, clients outside are served through the node that they ask\n"},
		{"direct return goes", direct, usual, changed + "direct return: none, clients outside are served through the node that they ask, " +
			"was nodes n2 (share 1), n3 (share 2) answer directly, by the client's address and port\n"},
		{"a frontend with direct return comes", func(d *plan.Desired) { clear(d.Frontends) }, direct,
			"Frontends: 1 added, 0 removed, 0 changed\n+ default/web port http: ClusterIP 10.96.0.1:80/TCP\n    endpoints: 10.244.0.1:80, 10.244.0.2:80\n" +
				"    direct return: nodes n2 (share 1), n3 (share 2) answer directly, by the client's address and port\n"},
		{"direct return is switched on", usual, func(d *plan.Desired) { d.Settings.DirectReturn = &plan.DirectReturn{} },
			node + "packets with direct return are handed to: no other node is known, was nobody: it is switched off\n"},
		{"a frontend goes", usual, func(d *plan.Desired) { clear(d.Frontends) },
			"Frontends: 0 added, 1 removed, 0 changed\n- default/web port http: ClusterIP 10.96.0.1:80/TCP\n"},
		{"a frontend comes without endpoints", func(d *plan.Desired) { clear(d.Frontends) },
			web(func(f *plan.Frontend) { f.Route = plan.Route{}; f.Port = "" }),
			"Frontends: 1 added, 0 removed, 0 changed\n+ default/web: ClusterIP 10.96.0.1:80/TCP\n    connections: rejected: the Service has no endpoint that can be used\n"},
		{"endpoints come and go", usual, web(func(f *plan.Frontend) { f.Route.Endpoints = pool("10.244.0.2:80", "10.244.0.3:80") }),
			changed + "endpoints: added: 10.244.0.3:80; removed: 10.244.0.1:80\n"},
		{"an endpoint moves here", usual, web(func(f *plan.Frontend) { f.Route.Endpoints = pool("10.244.0.1:80 here", "10.244.0.2:80") }),
			changed + "endpoints: added: 10.244.0.1:80 (on this node); removed: 10.244.0.1:80\n"},
		{"the last endpoint goes", usual, web(func(f *plan.Frontend) {
			f.Route = plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}
		}),
			changed + "endpoints: removed: 10.244.0.1:80, 10.244.0.2:80\n    connections: dropped: the Service has endpoints, but none on this node\n"},
		{"a verdict without effect", usual, web(func(f *plan.Frontend) { f.Route.Empty = plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints} }), "No difference.\n"},
		{"internal policy Local with the same endpoints", usual, web(func(f *plan.Frontend) { f.Route.Local = true }),
			changed + "traffic policy: endpoints on this node only, was all endpoints\n"},
		{"policy Local", usual, web(func(f *plan.Frontend) { f.Outside = &plan.Route{Endpoints: pool("10.244.0.1:80 here")} }),
			changed + "clients from outside: endpoints on this node only, was all endpoints\n    endpoints for clients from outside: added: 10.244.0.1:80 (on this node)\n"},
		{"policy Local without an endpoint here", usual, web(func(f *plan.Frontend) {
			f.Outside = &plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}
		}), changed + "clients from outside: dropped: the Service has endpoints, but none on this node, was all endpoints\n"},
		{"policy Local without any endpoint", usual, web(func(f *plan.Frontend) { f.Outside = &plan.Route{} }),
			changed + "clients from outside: rejected: the Service has no endpoint that can be used, was all endpoints\n"},
		{"masquerade and affinity", usual, web(func(f *plan.Frontend) { f.Masquerade, f.Affinity = plan.MasqueradeAlways, 10800 }),
			changed + "masquerade: all connections, was no connection\n    session affinity: 3h0m0s, was none\n"},
		{"endpoints that do not answer", usual, web(func(f *plan.Frontend) { f.Watched = true }),
			changed + "endpoints that do not answer: left out for a while, was get connections\n"},
		{"a filter", usual, web(func(f *plan.Frontend) { f.Filtered, f.Sources = true, []netip.Prefix{prefix("10.0.0.0/8")} }),
			changed + "admitted: some sources, was everybody\n    admitted sources: added: 10.0.0.0/8\n"},
		{"a filter that admits nobody", usual, web(func(f *plan.Frontend) { f.Filtered = true }), changed + "admitted: nobody, was everybody\n"},
		{"another Service takes it over", usual, web(func(f *plan.Frontend) { f.Service.Name = "w\x1b[2J" }),
			"Frontends: 0 added, 0 removed, 1 changed\n~ default/w\\x1b[2J port http: ClusterIP 10.96.0.1:80/TCP\n    service: default/w\\x1b[2J, port http, was default/web, port http\n"},
		{"node port addresses", usual, func(d *plan.Desired) { d.Settings.NodePortIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")} },
			node + "node port addresses: added: 192.0.2.1\n"},
		{"node ports on all addresses", usual, func(d *plan.Desired) { d.Settings.NodePortAll6 = true },
			node + "IPv6 node ports answer on: every local address, was chosen addresses\n"},
		{"a ClusterIP that comes with its frontend", func(d *plan.Desired) { clear(d.Frontends) }, clusterIP,
			"Frontends: 1 added, 0 removed, 0 changed\n+ default/web port http: ClusterIP 10.96.0.1:80/TCP\n    endpoints: 10.244.0.1:80, 10.244.0.2:80\n"},
		{"a ClusterIP that does not", usual, clusterIP, node + "ClusterIPs whose ports are refused: added: 10.96.0.1\n"},
		{"pods", usual, func(d *plan.Desired) { d.Settings.IPv6.Interface = "cni0" },
			node + "IPv6 pods are recognised by: interface cni0, was nothing\n"},
		{"a health check", usual, func(d *plan.Desired) {
			d.HealthChecks = map[model.Name]plan.HealthCheck{{Namespace: "a", Name: "b"}: {Port: 31000, LocalEndpoints: 2}}
		}, "Frontends: 0 added, 0 removed, 0 changed\nHealth check node ports\n~ a/b: port 31000, endpoints on this node: 2, was none\n"},
		{"a problem is no difference", usual, bad("bad\n"), "No difference.\nNew problems, and what to do\n! Service a/b: bad\\n (mend it)\n"},
		{"an old problem and a new one", bad("bad"), bad("bad", "worse"),
			"No difference.\nNew problems, and what to do\n! Service a/b: worse (mend it)\nProblems as before: 1\n"},
		{"a problem goes", bad("bad"), usual, "No difference.\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := Compare(desired(test.old), desired(test.new))
			var b strings.Builder
			if err := Write(&b, r); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if r.Different() == strings.HasPrefix(test.want, "No difference") {
				t.Errorf("Different says %v", r.Different())
			}
		})
	}
}

// What is different at once is told apart from what waits for a restart.
func TestRestartIsMarked(t *testing.T) {
	masquerade := web(func(f *plan.Frontend) { f.Masquerade = plan.MasqueradeAlways })
	affinity := web(func(f *plan.Frontend) { f.Affinity = 10 })
	all := func(d *plan.Desired) { d.Settings.NodePortAll4 = true }
	mark := func(d *plan.Desired) { d.Settings.MasqueradeMark = 1 }
	for _, test := range []struct {
		name         string
		atOnce, then []func(*plan.Desired)
		want         string
	}{
		{"everything at once", []func(*plan.Desired){all, masquerade}, []func(*plan.Desired){all, masquerade},
			changed + "masquerade: all connections, was no connection\nNode\n~ IPv4 node ports answer on: every local address, was chosen addresses\n"},
		{"a frontend later", nil, []func(*plan.Desired){masquerade},
			"Frontends: 0 added, 0 removed, 1 changed\n~ default/web port http: ClusterIP 10.96.0.1:80/TCP; requires a restart: it follows from mode\n    masquerade: all connections, was no connection\n"},
		{"more of a frontend later", []func(*plan.Desired){masquerade}, []func(*plan.Desired){masquerade, affinity},
			"Frontends: 0 added, 0 removed, 1 changed\n~ default/web port http: ClusterIP 10.96.0.1:80/TCP; requires a restart: it follows from mode\n" +
				"    masquerade: all connections, was no connection\n    session affinity: 10s, was none\n"},
		{"one of two settings later", []func(*plan.Desired){mark}, []func(*plan.Desired){mark, all},
			node + "IPv4 node ports answer on: every local address, was chosen addresses; requires a restart: it follows from mode\n~ masquerade mark: 0x1, was 0x0\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := Compare(desired(), desired(test.then...))
			r.WaitFor("it follows from mode", Compare(desired(), desired(test.atOnce...)))
			var b strings.Builder
			if err := Write(&b, r); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Ports that a mode leaves alone are not in its plans, and so are no difference.
func TestOtherPortsOfClusterIPs(t *testing.T) {
	for _, test := range []struct {
		name string
		cfg  plan.Config
		want int
	}{
		{"refused", plan.Config{}, 2},
		{"left alone", plan.Config{FrontendsOnly: true}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			planned := func(events ...model.Event) *plan.Desired {
				state, planner := model.NewState(), plan.New(test.cfg)
				state.Apply(&model.Dirty{}, events...)
				planner.Update(state, &model.Dirty{})
				return planner.Desired()
			}
			portless := &model.Service{Name: model.Name{Namespace: "a", Name: "b"}, ClusterIPs: testkit.Addrs("10.96.0.1")}
			cidr := &model.ServiceCIDR{Name: "c", Prefixes: testkit.Prefixes("10.96.0.0/16")}
			r := Compare(planned(), planned(model.SetService{Service: portless}, model.SetServiceCIDR{ServiceCIDR: cidr}))
			if len(r.Node) != test.want || r.Different() != (test.want > 0) {
				t.Errorf("the difference is %+v", r.Node)
			}
		})
	}
}

func TestLargeDifferenceIsBounded(t *testing.T) {
	d := desired()
	addr, f := netip.MustParseAddr("10.97.0.1"), plan.Frontend{}
	for range 3 * maxListed {
		f.Route.Endpoints = append(f.Route.Endpoints, plan.Endpoint{AddrPort: netip.AddrPortFrom(addr, 80)})
		addr = addr.Next()
	}
	for range MaxFrontends + 5 {
		one := f
		one.Key = plan.Key{Addr: addr, Port: 80, Protocol: model.TCP}
		d.Frontends[one.Key] = &one
		addr = addr.Next()
	}
	r := Compare(desired(), d)
	if r.Added != MaxFrontends+5 || len(r.Frontends) != MaxFrontends {
		t.Errorf("%d added, %d listed", r.Added, len(r.Frontends))
	}
	if l := r.Frontends[0].Details[0].Added; len(l.Values) != maxListed || l.More != 2*maxListed {
		t.Errorf("%d endpoints listed and %d more", len(l.Values), l.More)
	}
	var b strings.Builder
	if err := Write(&b, r); err != nil || !strings.Contains(b.String(), "and 5 more frontends") || !strings.Contains(b.String(), "and 200 more\n") {
		t.Errorf("%v: the text ends with %q", err, b.String()[max(0, b.Len()-200):])
	}
}
