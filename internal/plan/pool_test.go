package plan

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"sluice/internal/model"
)

func TestPools(t *testing.T) {
	type endpoint struct {
		n            int
		node         string
		c            model.Conditions
		zones, nodes string // hints; none if both are empty
	}
	tests := []struct {
		name           string
		in             [][]endpoint // by slice
		cluster, local string
	}{
		{"ready endpoints, sorted", [][]endpoint{{{n: 3, node: "far", c: ready}, {n: 1, node: here, c: ready}}, {{n: 2, c: ready}}}, "1* 2 3", "1*"},
		{"no endpoint anywhere", nil, "reject", "reject"},
		{"a slice without endpoints", [][]endpoint{{}}, "reject", "reject"},
		{"only unusable endpoints count as none", [][]endpoint{{{n: 1, node: here, c: starting}, {n: 2, node: here, c: dying}}}, "reject", "reject"},
		{"endpoints elsewhere only", [][]endpoint{{{n: 1, node: "far", c: ready}}}, "1", "drop"},
		{"a ready endpoint leaves terminating ones alone", [][]endpoint{{{n: 1, node: here, c: draining}, {n: 2, node: here, c: ready}}}, "2*", "2*"},
		{"terminating ones that serve stand in", [][]endpoint{{{n: 1, node: here, c: draining}, {n: 2, c: draining}, {n: 3, c: dying}}}, "1* 2", "1*"},
		{"local terminating ones stand in although others are ready elsewhere", [][]endpoint{{{n: 1, node: here, c: draining}, {n: 2, node: "far", c: ready}}}, "2", "1*"},
		{"terminating elsewhere only", [][]endpoint{{{n: 1, node: "far", c: draining}}}, "1", "drop"},
		{"ready while terminating is ready", [][]endpoint{{{n: 1, c: ready | draining}, {n: 2, c: draining}}}, "1", "drop"},

		{"an endpoint in two slices counts once", [][]endpoint{{{n: 1, c: ready}, {n: 2, c: ready}}, {{n: 1, c: ready}}}, "1 2", "drop"},
		{"the ready one of two wins, found last", [][]endpoint{{{n: 1, c: draining}, {n: 2, c: ready}}, {{n: 1, c: ready}}}, "1 2", "drop"},
		{"the ready one of two wins, found first", [][]endpoint{{{n: 1, node: here, c: ready}}, {{n: 1, node: here, c: draining}}, {{n: 2, c: ready}}}, "1* 2", "1*"},
		{"the serving one of two wins over the unusable one", [][]endpoint{{{n: 1, c: dying}}, {{n: 1, c: draining}}}, "1", "drop"},

		{"hints for this node", [][]endpoint{{{n: 1, node: here, c: ready, nodes: here}, {n: 2, c: ready, nodes: "far"}, {n: 3, c: ready, nodes: "far here"}}}, "1* 3", "1*"},
		{"hints for nodes go before zones", [][]endpoint{{{n: 1, c: ready, zones: "b", nodes: here}, {n: 2, c: ready, zones: "a", nodes: "far"}}}, "1", "drop"},
		{"hints for other nodes only: zones decide", [][]endpoint{{{n: 1, c: ready, zones: "b", nodes: "far"}, {n: 2, c: ready, zones: "a b", nodes: "far"}}}, "2", "drop"},
		{"one endpoint without hints for nodes: zones decide", [][]endpoint{{{n: 1, c: ready, zones: "b", nodes: here}, {n: 2, c: ready, zones: "a"}}}, "2", "drop"},
		{"the endpoint without hints for nodes comes first", [][]endpoint{{{n: 1, c: ready, zones: "a"}, {n: 2, c: ready, zones: "b", nodes: here}}}, "1", "drop"},
		{"hints for this zone", [][]endpoint{{{n: 1, c: ready, zones: "a"}, {n: 2, c: ready, zones: "b"}, {n: 3, c: ready, zones: "b a"}}}, "1 3", "drop"},
		{"hints for other zones only", [][]endpoint{{{n: 1, c: ready, zones: "b"}, {n: 2, c: ready, zones: "c"}}}, "1 2", "drop"},
		{"one endpoint without hints", [][]endpoint{{{n: 1, c: ready, zones: "a"}, {n: 2, c: ready}, {n: 3, c: ready, zones: "b"}}}, "1 2 3", "drop"},
		{"one endpoint with empty hints", [][]endpoint{{{n: 1, c: ready, zones: "a"}, {n: 2, c: ready, nodes: "far"}}}, "1 2", "drop"},
		{"unusable endpoints have no say in topology", [][]endpoint{{{n: 1, c: ready, zones: "a"}, {n: 2, c: ready, zones: "b"}, {n: 3, c: starting}, {n: 4, c: draining}}}, "1", "drop"},
		{"hints do not apply to terminating stand-ins", [][]endpoint{{{n: 1, c: draining, zones: "a"}, {n: 2, c: draining, zones: "b"}}}, "1 2", "drop"},
		{"hints do not apply to the local pool", [][]endpoint{{{n: 1, node: here, c: ready, zones: "b"}, {n: 2, c: ready, zones: "a"}}}, "2", "1*"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, f model.Family) {
				var in []*model.Slice
				for i, endpoints := range tt.in {
					s := slice(f, "web-"+string(rune('a'+i)))
					for _, e := range endpoints {
						p := pod(f, e.n, e.node, e.c)
						if e.zones+e.nodes != "" {
							p = hinted(p, e.zones, e.nodes)
						}
						s.Endpoints = append(s.Endpoints, p)
					}
					in = append(in, s)
				}
				checkPolicies(t, f, in, tt.cluster, tt.local)
			})
		})
	}
}

// checkPolicies holds that each policy sends each client to the right pool.
func checkPolicies(t *testing.T, f model.Family, in []*model.Slice, cluster, local string) {
	t.Helper()
	tests := []struct {
		policy                   string
		edit                     func(*model.Service)
		clusterIP, ext, extOuter string
	}{
		{"Cluster", func(*model.Service) {}, cluster, cluster, "-"},
		{"internal Local", internalLocal, local, cluster, "-"},
		{"external Local", externalLocal, cluster, cluster, local},
		{"both Local", func(s *model.Service) { internalLocal(s); externalLocal(s) }, local, cluster, local},
	}
	for _, tt := range tests {
		d := planWeb(defaults, service(f, external(f), tt.edit), in...)
		for _, frontend := range d.Frontends {
			route, outside := tt.ext, tt.extOuter
			if frontend.Kind == ClusterIP {
				route, outside = tt.clusterIP, "-"
			}
			if got := routeText(f, &frontend.Route); got != route {
				t.Errorf("policy %s, %s: route %q, want %q", tt.policy, frontend.Kind, got, route)
			}
			if got := routeText(f, frontend.Outside); got != outside {
				t.Errorf("policy %s, %s: outside %q, want %q", tt.policy, frontend.Kind, got, outside)
			}
		}
		if len(d.Frontends) != 4 {
			t.Errorf("policy %s: %d frontends, want one of each kind", tt.policy, len(d.Frontends))
		}
	}
}

func TestFrontendsShareEndpoints(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		d := planWeb(defaults, service(f, external(f)), slice(f, "web-a", pod(f, 1, here, ready)))
		first := &frontendAt(t, d, clusterIP(f)).Route.Endpoints[0]
		for key, frontend := range d.Frontends {
			if &frontend.Route.Endpoints[0] != first {
				t.Errorf("%s has a copy of its own", key)
			}
		}
	})
}

func TestZoneHintsNeedAZoneOfTheNode(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		unnamedZone := pod(f, 2, "", ready)
		unnamedZone.Hints = &model.Hints{Zones: []string{""}}
		for name, node := range map[string]*model.Node{"no Node": nil, "no zone": {Name: here}} {
			d := fromScratch(defaults, stateOf(
				model.SetNode{Node: node},
				model.SetService{Service: service(f)},
				model.SetSlice{Slice: slice(f, "web-a", hinted(pod(f, 1, "", ready), "a", ""), unnamedZone)},
			))
			if got := routeText(f, &frontendAt(t, d, clusterIP(f)).Route); got != "1 2" {
				t.Errorf("%s: route %q", name, got)
			}
		}
	})
}

func TestEmptyNodeNameIsNotLocal(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		d := planWeb(Config{}, service(f, internalLocal), slice(f, "web-a", pod(f, 1, "", ready)))
		wantEqual(t, "route", "drop", routeText(f, &frontendAt(t, d, clusterIP(f)).Route))
	})
}

func TestSlicePortsMatch(t *testing.T) {
	tests := []struct {
		name string
		in   []model.SlicePort
		want string
	}{
		{"same name and protocol", []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}}, "1"},
		{"another name", []model.SlicePort{{Name: "https", Protocol: model.TCP, Port: 8080}}, "reject"},
		{"another protocol", []model.SlicePort{{Name: "http", Protocol: model.UDP, Port: 8080}}, "reject"},
		{"no name", []model.SlicePort{{Protocol: model.TCP, Port: 8080}}, "reject"},
		{"no port number", []model.SlicePort{{Name: "http", Protocol: model.TCP}}, "reject"},
		{"one of several", []model.SlicePort{
			{Name: "https", Protocol: model.TCP, Port: 8443},
			{Name: "http", Protocol: model.UDP, Port: 8081},
			{Name: "http", Protocol: model.TCP, Port: 9090},
		}, "1:9090"},
		{"no ports", nil, "reject"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, f model.Family) {
				s := slice(f, "web-a", pod(f, 1, "", ready))
				s.Ports = tt.in
				d := planWeb(defaults, service(f), s)
				wantEqual(t, "route", tt.want, routeText(f, &frontendAt(t, d, clusterIP(f)).Route))
			})
		})
	}
}

func TestSlicesWithDifferentTargetPorts(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		other := slice(f, "web-b", pod(f, 1, "", ready), pod(f, 2, "", ready))
		other.Ports[0].Port = 8081
		d := planWeb(defaults, service(f), slice(f, "web-a", pod(f, 1, "", ready)), other)
		wantEqual(t, "route", "1 1:8081 2:8081", routeText(f, &frontendAt(t, d, clusterIP(f)).Route))
	})
}

func TestDualStack(t *testing.T) {
	svc := service(model.IPv4, func(s *model.Service) { s.ClusterIPs = append(s.ClusterIPs, clusterIP(model.IPv6)) })
	d := planWeb(defaults, svc,
		slice(model.IPv4, "web-4", pod(model.IPv4, 1, "", ready)),
		slice(model.IPv6, "web-6", pod(model.IPv6, 2, "", ready)))
	wantEqual(t, "IPv4", "1", routeText(model.IPv4, &frontendAt(t, d, clusterIP(model.IPv4)).Route))
	wantEqual(t, "IPv6", "2", routeText(model.IPv6, &frontendAt(t, d, clusterIP(model.IPv6)).Route))
	wantEqual(t, "problems", 0, len(d.Problems))
}

func TestBadEndpointAddressesAreReported(t *testing.T) {
	endpoint := func(ip string) model.Endpoint {
		return model.Endpoint{Addr: addrs(ip)[0], Conditions: ready}
	}
	tests := []struct {
		name   string
		family model.Family
		in     []model.Endpoint
		want   []string
	}{
		{"loopback", model.IPv4, []model.Endpoint{endpoint("127.0.0.1")}, []string{"endpoints[0].addresses: 127.0.0.1 is a loopback address"}},
		{"IPv6 loopback", model.IPv6, []model.Endpoint{endpoint("::1")}, []string{"endpoints[0].addresses: ::1 is a loopback address"}},
		{"link-local", model.IPv4, []model.Endpoint{endpoint("169.254.1.1")}, []string{"endpoints[0].addresses: 169.254.1.1 is link-local"}},
		{"IPv6 link-local", model.IPv6, []model.Endpoint{endpoint("fe80::1")}, []string{"endpoints[0].addresses: fe80::1 is link-local"}},
		{"unspecified", model.IPv4, []model.Endpoint{endpoint("0.0.0.0")}, []string{"endpoints[0].addresses: 0.0.0.0 is the unspecified address"}},
		{"IPv6 unspecified", model.IPv6, []model.Endpoint{endpoint("::")}, []string{"endpoints[0].addresses: :: is the unspecified address"}},
		{"multicast", model.IPv4, []model.Endpoint{endpoint("224.0.0.1")}, []string{"endpoints[0].addresses: 224.0.0.1 is a multicast address"}},
		{"IPv6 multicast", model.IPv6, []model.Endpoint{endpoint("ff02::1")}, []string{"endpoints[0].addresses: ff02::1 is a multicast address"}},
		{"no address", model.IPv4, []model.Endpoint{{Conditions: ready}}, []string{"endpoints[0].addresses: invalid IP is not an address"}},
		{"the other family", model.IPv4, []model.Endpoint{endpoint("fd00:1::1")}, []string{"endpoints[0].addresses: fd00:1::1 is not of the slice's address type"}},
		{
			"several among good ones", model.IPv4,
			[]model.Endpoint{pod(model.IPv4, 1, "", ready), endpoint("127.0.0.1"), endpoint("0.0.0.0")},
			[]string{"endpoints[1].addresses: 127.0.0.1 is a loopback address, and 1 more addresses cannot be endpoints"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := planWeb(defaults, service(tt.family), slice(tt.family, "web-a", tt.in...))
			want := "reject"
			if len(tt.in) > 1 {
				want = "1"
			}
			wantEqual(t, "route", want, routeText(tt.family, &frontendAt(t, d, clusterIP(tt.family)).Route))
			wantEqual(t, "problems", tt.want, problemList(d, "EndpointSlice default/web-a"))
		})
	}
}

func TestSliceOfOtherFamilyIsReported(t *testing.T) {
	d := planWeb(defaults, service(model.IPv4), slice(model.IPv6, "web-6", pod(model.IPv6, 1, here, ready)))
	wantEqual(t, "frontends", []string{"10.96.0.1:80/TCP ClusterIP web:http"}, frontendList(d))
	wantEqual(t, "route", "reject", routeText(model.IPv4, &frontendAt(t, d, clusterIP(model.IPv4)).Route))
	wantEqual(t, "problems", []string{"addressType: IPv6 is ignored: Service default/web has no ClusterIP of that family"},
		problemList(d, "EndpointSlice default/web-6"))
}

func TestEndpointsAreSorted(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		random := rand.New(rand.NewPCG(1, 1))
		s := slice(f, "web-a")
		for range 1000 {
			var ip [16]byte
			binary.BigEndian.PutUint64(ip[:], 0x2001_0db8_0000_0000|uint64(random.IntN(4)))
			binary.BigEndian.PutUint64(ip[8:], uint64(random.IntN(200))<<32)
			e := model.Endpoint{Addr: netip.AddrFrom16(ip), Conditions: ready}
			if f == model.IPv4 {
				e.Addr = netip.AddrFrom4([4]byte{10, ip[7], 0, ip[11]})
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		s.Ports = append(s.Ports, model.SlicePort{Name: "http", Protocol: model.TCP, Port: 443})
		got := frontendAt(t, planWeb(defaults, service(f), s), clusterIP(f)).Route.Endpoints
		for i := 1; i < len(got); i++ {
			if got[i-1].AddrPort.Compare(got[i].AddrPort) >= 0 {
				t.Errorf("%s before %s", got[i-1], got[i])
			}
		}
		distinct := map[netip.Addr]bool{}
		for _, e := range s.Endpoints {
			distinct[e.Addr] = true
		}
		wantEqual(t, "endpoints", 2*len(distinct), len(got))
	})
}
