//go:build linux

package conntrack

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/model"
	"sluice/internal/plan"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// udp is the key of a frontend.
func udp(at string) plan.Key {
	ap := addrPort(at)
	return plan.Key{Addr: ap.Addr(), Port: ap.Port(), Protocol: model.UDP}
}

func route(endpoints ...string) plan.Route {
	var r plan.Route
	for _, e := range endpoints {
		r.Endpoints = append(r.Endpoints, plan.Endpoint{AddrPort: addrPort(e)})
	}
	slices.SortFunc(r.Endpoints, func(a, b plan.Endpoint) int { return a.AddrPort.Compare(b.AddrPort) })
	return r
}

func frontend(at string, endpoints ...string) *plan.Frontend {
	return &plan.Frontend{Key: udp(at), Route: route(endpoints...)}
}

// split has another pool for clients outside.
func split(f *plan.Frontend, outside ...string) *plan.Frontend {
	r := route(outside...)
	f.Outside = &r
	return f
}

// draining has endpoints that still serve, but get no new flows.
func draining(f *plan.Frontend, endpoints ...string) *plan.Frontend {
	f.AlsoServing = route(endpoints...).Endpoints
	return f
}

// byRoute are the addresses that the routing table calls local.
func byRoute(ip netip.Addr) bool {
	return slices.Contains([]netip.Addr{addr("203.0.113.5"), addr("2001:db8:5::5"), addr("127.0.0.1")}, ip)
}

func nodePortsOn(ips ...string) *plan.Settings {
	s := &plan.Settings{}
	for _, ip := range ips {
		s.NodePortIPs = append(s.NodePortIPs, addr(ip))
	}
	return s
}

// kernel is an index, and the frontends that are programmed.
type kernel struct {
	*index
	frontends map[plan.Key]*plan.Frontend
}

// node has node ports on two addresses.
func node(frontends ...*plan.Frontend) kernel {
	x := kernel{newIndex(byRoute), map[plan.Key]*plan.Frontend{}}
	x.configure(nodePortsOn("192.0.2.10", "2001:db8::10"))
	for _, f := range frontends {
		x.set(f)
	}
	return x
}

func (x kernel) set(f *plan.Frontend) kinds {
	old := x.frontends[f.Key]
	x.frontends[f.Key] = f
	return x.index.set(old, f)
}

func (x kernel) remove(key plan.Key) {
	delete(x.frontends, key)
	x.index.remove(key)
}

func (x kernel) refuse(key plan.Key) {
	x.frontends[key] = nil
	x.index.refuse(key)
}

func (x kernel) stale(f *flow) bool {
	return x.index.stale(f, x.frontends)
}

// tcpFrontend is one for TCP.
func tcpFrontend(at string, endpoints ...string) *plan.Frontend {
	f := frontend(at, endpoints...)
	f.Protocol = model.TCP
	return f
}

func flowOf(protocol model.Protocol, to, by string) *flow {
	return &flow{ctnetlink.Entry{Protocol: protocol, To: addrPort(to), By: addrPort(by)}}
}

func TestStale(t *testing.T) {
	web := draining(frontend("10.96.0.1:53", "10.244.1.1:5353", "10.244.1.2:5353"), "10.244.1.4:5353")
	web6 := frontend("[fd00:96::1]:53", "[fd00:244::1]:5353")
	empty := draining(frontend("10.96.0.2:53"), "10.244.1.4:5353")
	nodePort := frontend("0.0.0.0:30053", "10.244.1.1:5353")
	nodePort6 := frontend("[::]:30053", "[fd00:244::1]:5353")
	local := split(frontend("198.18.0.1:53", "10.244.1.1:5353", "10.244.2.1:5353"), "10.244.1.3:5353")
	own := frontend("192.0.2.10:53", "192.0.2.10:53")
	exact := frontend("192.0.2.10:30054", "10.244.1.1:5353")
	shadowed := frontend("0.0.0.0:30054", "10.244.1.2:5353")
	all := func() kernel {
		return node(web, web6, empty, nodePort, nodePort6, local, own, exact, shadowed)
	}
	tests := []struct {
		name     string
		protocol model.Protocol
		to, by   string
		want     bool
	}{
		{"endpoint is there", model.UDP, "10.96.0.1:53", "10.244.1.2:5353", false},
		{"endpoint left", model.UDP, "10.96.0.1:53", "10.244.1.3:5353", true},
		{"endpoint gets no new flows but serves", model.UDP, "10.96.0.1:53", "10.244.1.4:5353", false},
		{"the last one that serves, and there is none for new flows", model.UDP, "10.96.0.2:53", "10.244.1.4:5353", false},
		{"endpoint has another port now", model.UDP, "10.96.0.1:53", "10.244.1.1:53", true},
		{"black-holed", model.UDP, "10.96.0.1:53", "10.96.0.1:53", true},
		{"another port of the address", model.UDP, "10.96.0.1:54", "10.96.0.1:54", false},
		{"another port of the address, translated else", model.UDP, "10.96.0.1:54", "10.244.9.9:54", false},
		{"another protocol", model.TCP, "10.96.0.1:53", "10.244.1.3:5353", false},
		{"IPv6 endpoint is there", model.UDP, "[fd00:96::1]:53", "[fd00:244::1]:5353", false},
		{"IPv6 endpoint left", model.UDP, "[fd00:96::1]:53", "[fd00:244::2]:5353", true},
		{"IPv6 black-holed", model.UDP, "[fd00:96::1]:53", "[fd00:96::1]:53", true},
		{"last endpoint left", model.UDP, "10.96.0.2:53", "10.244.1.1:5353", true},
		{"black-holed before it is refused", model.UDP, "10.96.0.2:53", "10.96.0.2:53", true},
		{"node port, endpoint is there", model.UDP, "192.0.2.10:30053", "10.244.1.1:5353", false},
		{"node port, endpoint left", model.UDP, "192.0.2.10:30053", "10.244.1.2:5353", true},
		{"node port, was a socket of the node", model.UDP, "192.0.2.10:30053", "192.0.2.10:30053", true},
		{"node port, on an address without node ports", model.UDP, "192.0.2.11:30053", "10.244.1.2:5353", false},
		{"node port, another node's", model.UDP, "192.0.2.20:30053", "192.0.2.20:30053", false},
		{"IPv6 node port, endpoint is there", model.UDP, "[2001:db8::10]:30053", "[fd00:244::1]:5353", false},
		{"IPv6 node port, endpoint left", model.UDP, "[2001:db8::10]:30053", "[fd00:244::2]:5353", true},
		{"an address goes before a node port", model.UDP, "192.0.2.10:30054", "10.244.1.1:5353", false},
		{"a node port goes behind an address", model.UDP, "192.0.2.10:30054", "10.244.1.2:5353", true},
		{"policy Local, inside pool", model.UDP, "198.18.0.1:53", "10.244.2.1:5353", false},
		{"policy Local, outside pool", model.UDP, "198.18.0.1:53", "10.244.1.3:5353", false},
		{"policy Local, neither", model.UDP, "198.18.0.1:53", "10.244.1.4:5353", true},
		{"the endpoint is the frontend itself", model.UDP, "192.0.2.10:53", "192.0.2.10:53", false},
		{"foreign", model.UDP, "203.0.113.1:53", "203.0.113.1:53", false},
		{"translated foreign", model.UDP, "192.0.2.10:8053", "10.244.1.1:53", false},
		{"straight to an endpoint", model.UDP, "10.244.1.1:5353", "10.244.1.1:5353", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := all().stale(flowOf(tt.protocol, tt.to, tt.by)); got != tt.want {
				t.Errorf("stale is %v", got)
			}
		})
	}
}

func TestStaleAfterRemoval(t *testing.T) {
	x := node(frontend("10.96.0.1:53", "10.244.1.1:5353"), frontend("0.0.0.0:30053", "10.244.1.1:5353"),
		frontend("0.0.0.0:30054", "10.244.1.1:5353"))
	x.remove(udp("10.96.0.1:53"))
	x.remove(udp("0.0.0.0:30053"))
	check := func(name, to, by string, want bool) {
		t.Helper()
		if got := x.stale(flowOf(model.UDP, to, by)); got != want {
			t.Errorf("%s: stale is %v", name, got)
		}
	}
	check("translated", "10.96.0.1:53", "10.244.1.1:5353", true)
	check("never translated", "10.96.0.1:53", "10.96.0.1:53", false)
	check("node port, translated", "192.0.2.10:30053", "10.244.1.1:5353", true)
	check("node port, never translated", "192.0.2.10:30053", "192.0.2.10:30053", false)
	check("node port that stays", "192.0.2.10:30054", "10.244.1.1:5353", false)

	x.configure(nodePortsOn("192.0.2.11"))
	check("node port, on an address that had node ports", "192.0.2.10:30054", "10.244.1.1:5353", true)
	check("both gone", "192.0.2.10:30053", "10.244.1.1:5353", true)
	check("a socket on that address", "192.0.2.10:30054", "192.0.2.10:30054", false)
	check("another port of that address", "192.0.2.10:8053", "10.244.1.1:5353", false)

	x.forget()
	check("after a pass", "10.96.0.1:53", "10.244.1.1:5353", false)
	check("node port, after a pass", "192.0.2.10:30054", "10.244.1.1:5353", false)

	x.set(frontend("10.96.0.1:53", "10.244.1.2:5353"))
	check("it came back without the endpoint", "10.96.0.1:53", "10.244.1.1:5353", true)
}

// Where node ports answer on every local address, the routing table says which
// those are.
func TestNodePortsOnEveryLocalAddress(t *testing.T) {
	all := nodePortsOn("192.0.2.10", "2001:db8::10")
	all.NodePortAll4, all.NodePortAll6 = true, true
	x := node(frontend("0.0.0.0:30053", "10.244.1.1:5353"), frontend("[::]:30053", "[fd00:244::1]:5353"))
	x.forget()
	if !x.configure(all) {
		t.Error("that node ports answer on more addresses needs no pass")
	}
	check := func(name, to, by string, want bool) {
		t.Helper()
		if got := x.stale(flowOf(model.UDP, to, by)); got != want {
			t.Errorf("%s: stale is %v", name, got)
		}
	}
	check("on an interface, endpoint left", "192.0.2.10:30053", "10.244.1.2:5353", true)
	check("by a route, endpoint is there", "203.0.113.5:30053", "10.244.1.1:5353", false)
	check("by a route, endpoint left", "203.0.113.5:30053", "10.244.1.2:5353", true)
	check("by a route, black-holed", "203.0.113.5:30053", "203.0.113.5:30053", true)
	check("IPv6, by a route, endpoint is there", "[2001:db8:5::5]:30053", "[fd00:244::1]:5353", false)
	check("IPv6, by a route, endpoint left", "[2001:db8:5::5]:30053", "[fd00:244::2]:5353", true)
	check("another port", "203.0.113.5:30054", "203.0.113.5:30054", false)
	check("a foreign address", "203.0.113.6:30053", "203.0.113.6:30053", false)
	check("a foreign address, translated", "203.0.113.6:30053", "10.244.1.2:5353", false)
	check("loopback", "127.0.0.1:30053", "127.0.0.1:30053", false)

	x.forget()
	if !x.configure(nodePortsOn("192.0.2.10", "2001:db8::10")) {
		t.Error("that node ports answer on fewer addresses needs no pass")
	}
	check("no longer served, translated", "203.0.113.5:30053", "10.244.1.1:5353", true)
	check("no longer served, never translated", "203.0.113.5:30053", "203.0.113.5:30053", false)
	check("served as before", "192.0.2.10:30053", "10.244.1.1:5353", false)
	x.forget()
	check("after a pass", "203.0.113.5:30053", "10.244.1.1:5353", false)
}

// With direct return, another node may have handed over packets to its own node port. Packets that pods here
// send to one of another node are not such: they are not translated.
func TestNodePortsOfOtherNodes(t *testing.T) {
	settings := nodePortsOn("192.0.2.10")
	settings.DirectReturn = &plan.DirectReturn{Nodes: []plan.DirectNode{
		{Name: "far", IPs: []netip.Addr{addr("192.0.2.20")}}, {Name: "here", Self: true, IPs: []netip.Addr{addr("192.0.2.10"), addr("192.0.2.11")}}}}
	x := node(frontend("0.0.0.0:30053", "10.244.1.1:5353"))
	x.configure(settings)
	check := func(name, to, by string, want bool) {
		t.Helper()
		if got := x.stale(flowOf(model.UDP, to, by)); got != want {
			t.Errorf("%s: stale is %v", name, got)
		}
	}
	check("endpoint is there", "192.0.2.20:30053", "10.244.1.1:5353", false)
	check("endpoint left", "192.0.2.20:30053", "10.244.1.2:5353", true)
	check("not translated", "192.0.2.20:30053", "192.0.2.20:30053", false)
	check("another port", "192.0.2.20:30054", "10.244.1.2:5353", false)
	check("an address of this node without node ports", "192.0.2.11:30053", "10.244.1.2:5353", false)
	x.remove(udp("0.0.0.0:30053"))
	check("the node port is gone", "192.0.2.20:30053", "10.244.1.1:5353", true)
}

func TestRefusedIsNeverStale(t *testing.T) {
	x := node(frontend("10.96.0.1:53", "10.244.1.1:5353"))
	x.refuse(udp("10.96.0.1:53"))
	for _, by := range []string{"10.96.0.1:53", "10.244.1.1:5353", "10.244.1.2:5353"} {
		if x.stale(flowOf(model.UDP, "10.96.0.1:53", by)) {
			t.Errorf("answered by %s: stale", by)
		}
	}
}

func TestOtherZonesAreLeftAlone(t *testing.T) {
	x := node(frontend("10.96.0.1:53", "10.244.1.1:5353"))
	switched := flowOf(model.UDP, "10.96.0.1:53", "10.96.0.1:53")
	switched.Zoned = true
	if x.stale(switched) {
		t.Error("untranslated: stale")
	}
	translated := flowOf(model.UDP, "10.96.0.1:53", "10.244.1.2:5353")
	translated.Zoned = true
	if !x.stale(translated) {
		t.Error("translated to an endpoint that left: not stale")
	}
}

func TestWhichChangesNeedAPass(t *testing.T) {
	const at, a, b = "10.96.0.1:53", "10.244.1.1:53", "10.244.1.2:53"
	tests := []struct {
		name     string
		old, now *plan.Frontend
		want     bool
	}{
		{"new", nil, frontend(at, a), true},
		{"new without endpoints", nil, frontend(at), true},
		{"first endpoint", frontend(at), frontend(at, a), true},
		{"one more endpoint", frontend(at, a), frontend(at, a, b), false},
		{"the same", frontend(at, a), frontend(at, a), false},
		{"one endpoint less", frontend(at, a, b), frontend(at, a), true},
		{"one for another", frontend(at, a), frontend(at, b), true},
		{"last endpoint left", frontend(at, a), frontend(at), true},
		{"moved to the other pool", split(frontend(at, a, b), a), split(frontend(at, a), b), false},
		{"policy changes, pool stays", frontend(at, a, b), split(frontend(at, a, b), a), false},
		{"gone from the outside pool", split(frontend(at), a), split(frontend(at)), true},
		{"terminates in good order", frontend(at, a, b), draining(frontend(at, b), a), false},
		{"the last one terminates in good order", frontend(at, a), draining(frontend(at), a), false},
		{"terminated", draining(frontend(at, b), a), frontend(at, b), true},
		{"serves new flows again", draining(frontend(at, b), a), frontend(at, a, b), false},
		{"policy changes, pool shrinks", frontend(at, a, b), draining(split(frontend(at, a), a), b), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := node()
			if tt.old != nil {
				x.set(tt.old)
			}
			if got := x.set(tt.now) != nil; got != tt.want {
				t.Errorf("needs a pass: %v", got)
			}
		})
	}
}
