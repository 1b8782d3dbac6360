package plan_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// explore calls check with many random worlds, a packet for each, and what plan
// decides about it.
func explore(t *testing.T, check func(t *testing.T, w oracle.World, p oracle.Packet, d plan.Decision)) {
	t.Helper()
	randomworld.Explore(func(c randomworld.Case) {
		desired := c.Planner.Desired()
		check(t, c.World, c.Packet, desired.Decide(packetOf(c.World, c.Packet, &desired.Settings)))
		if t.Failed() {
			t.Fatalf("seed %d, packet %+v", c.Seed, c.Packet)
		}
	})
}

// packetOf is the oracle's packet as plan sees it.
func packetOf(w oracle.World, p oracle.Packet, s *plan.Settings) plan.Packet {
	byRoute := func(ip netip.Addr) bool {
		return slices.ContainsFunc(w.LocalRoutes, func(r netip.Prefix) bool { return r.Contains(ip) })
	}
	ours := p.Source.IsLoopback() || slices.Contains(w.HostIPs, p.Source) || byRoute(p.Source) ||
		w.Node != nil && slices.Contains(w.Node.IPs, p.Source)
	return plan.Packet{
		From: s.Client(p.Source, p.Interface, ours), Source: p.Source,
		To:     plan.Key{Addr: p.Destination, Port: p.Port, Protocol: p.Protocol},
		ToNode: byRoute(p.Destination),
	}
}

// outcome is a verdict in a form in which both sides have it.
type outcome struct {
	Verdict     plan.Verdict
	Masqueraded map[string]bool
}

func TestDecideAgreesWithTheOracle(t *testing.T) {
	verdicts := map[oracle.Action]plan.Verdict{
		oracle.Pass: plan.Pass, oracle.Forward: plan.Forward, oracle.Reject: plan.Reject, oracle.Drop: plan.Drop,
	}
	seen, masqueraded := map[plan.Cause]int{}, map[plan.MasqueradeCause]map[bool]int{}
	explore(t, func(t *testing.T, w oracle.World, p oracle.Packet, d plan.Decision) {
		verdict := oracle.Decide(w, p)
		want := outcome{verdicts[verdict.Action], map[string]bool{}}
		for e, yes := range verdict.MasqueradedTo {
			want.Masqueraded[e.String()] = yes
		}
		got := outcome{d.Verdict, map[string]bool{}}
		if d.Verdict == plan.Forward {
			for _, e := range d.Route.Endpoints {
				yes, why := d.Masquerade(e.Addr())
				got.Masqueraded[e.String()] = yes
				if masqueraded[why] == nil {
					masqueraded[why] = map[bool]int{}
				}
				masqueraded[why][yes]++
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the oracle says: %s (-oracle +plan):\n%s", verdict.Why, diff)
		}
		seen[d.Cause]++
	})
	for cause := plan.NoEndpoints; cause <= plan.NoIPv6; cause++ {
		if seen[cause] == 0 {
			t.Errorf("no packet was decided by %q: the test has holes", cause)
		}
	}
	for cause := plan.PodsNotDetected; cause < plan.ProxyConnects; cause++ {
		if n := masqueraded[cause]; len(n) != 1 {
			t.Errorf("cause %d of masquerading explains %v, want only one of yes and no", cause, n)
		}
	}
}

func TestServesAgreesWithTheOracle(t *testing.T) {
	outsidePools := 0
	explore(t, func(t *testing.T, w oracle.World, p oracle.Packet, d plan.Decision) {
		f := d.Frontend
		if f == nil {
			return
		}
		for _, slice := range w.Slices {
			for _, port := range slice.Ports {
				for _, e := range slice.Endpoints {
					at := netip.AddrPortFrom(e.Addr, port.Port)
					if want, got := oracle.KeepsFlows(w, p, at), f.Serves(at); want != got {
						t.Errorf("%s serves %s: %v, the oracle says %v", at, f.Key, got, want)
					}
				}
			}
		}
		outsidePools += len(f.AlsoServing)
	})
	if outsidePools == 0 {
		t.Error("no endpoint served outside the pools: the test has holes")
	}
}

func TestLoopbackNodePortsAreServedByTheProxy(t *testing.T) {
	loopback, pod := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.1.0.1")
	serves := &plan.Frontend{Kind: plan.NodePort, Route: plan.Route{Endpoints: []plan.Endpoint{{AddrPort: netip.AddrPortFrom(pod, 80)}}}}
	d := &plan.Desired{
		Settings: plan.Settings{LoopbackIPs: testkit.Addrs("127.0.0.1")},
		Frontends: map[plan.Key]*plan.Frontend{
			plan.NodePortKey(model.IPv4, 30080, model.TCP):  serves,
			plan.NodePortKey(model.IPv4, 30080, model.SCTP): serves,
		},
	}
	to := plan.Packet{From: plan.NodeClient, To: plan.Key{Addr: loopback, Port: 30080, Protocol: model.TCP}}
	c := d.Decide(to)
	if yes, why := c.Masquerade(pod); c.Verdict != plan.Forward || !c.Loopback || !yes || why != plan.ProxyConnects {
		t.Errorf("%+v", c)
	}
	to.From = plan.OutsideClient
	if c := d.Decide(to); c.Verdict != plan.Pass {
		t.Errorf("a neighbour meets %s", c.Verdict)
	}
	to.From, to.To.Protocol = plan.NodeClient, model.SCTP
	if c := d.Decide(to); c.Verdict != plan.Pass {
		t.Errorf("SCTP meets %s", c.Verdict)
	}
}

// Where the proxy connects itself, an endpoint sees the client's address if its replies come back.
func TestProxyMasquerades(t *testing.T) {
	const node, local, remote, elsewhere = "192.0.2.10", "10.244.0.1", "10.244.1.1", "192.0.2.20"
	web := plan.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}
	f := &plan.Frontend{Key: web, ProxyConnects: true, Masquerade: plan.MasqueradeOffCluster, MasqueradeCause: plan.ClientNotPod}
	for _, ip := range []string{local, remote, node, elsewhere} {
		f.Route.Endpoints = append(f.Route.Endpoints, plan.Endpoint{AddrPort: netip.AddrPortFrom(netip.MustParseAddr(ip), 8080), Local: ip == local})
	}
	d := &plan.Desired{Frontends: map[plan.Key]*plan.Frontend{web: f},
		Settings: plan.Settings{HostIPs: testkit.Addrs(node), PodCIDRs: testkit.Prefixes("10.244.1.0/24")}}
	for _, tt := range []struct {
		from             plan.Client
		source, endpoint string
		want             bool
		why              plan.MasqueradeCause
	}{
		{plan.PodClient, "10.244.0.5", local, false, plan.ClientIsPod},
		{plan.PodClient, "10.244.0.5", remote, false, plan.ClientIsPod},
		{plan.PodClient, "10.244.0.5", elsewhere, true, plan.ProxyConnects},
		{plan.PodClient, local, local, true, plan.ClientIsEndpoint},
		{plan.PodClient, "", elsewhere, true, plan.ProxyConnects},
		{plan.OutsideClient, "198.51.100.1", local, true, plan.ClientNotPod},
		{plan.OutsideClient, "198.51.100.1", node, false, plan.EndpointIsNode},
		{plan.OutsideClient, "198.51.100.1", "", true, plan.ClientNotPod},
	} {
		p := plan.Packet{From: tt.from, To: web}
		if tt.source != "" {
			p.Source = netip.MustParseAddr(tt.source)
		}
		var endpoint netip.Addr
		if tt.endpoint != "" {
			endpoint = netip.MustParseAddr(tt.endpoint)
		}
		c := d.Decide(p)
		if got, why := c.Masquerade(endpoint); got != tt.want || why != tt.why {
			t.Errorf("%s %s to %s: %v because %s, want %v because %s", tt.from, tt.source, tt.endpoint, got, why.Text(), tt.want, tt.why.Text())
		}
	}
}
