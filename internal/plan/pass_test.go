package plan

import (
	"net/netip"
	"testing"

	"sluice/internal/model"
)

// Packets to external addresses without an endpoint are left alone where the Service asks for that; those to its
// ClusterIP are not.
func TestPassThrough(t *testing.T) {
	passThrough := func(s *model.Service) { s.PassThrough = true }
	for _, tt := range []struct {
		name             string
		service          []func(*model.Service)
		endpoints        []model.Endpoint
		inside, outside  Verdict // at external addresses
		insideOfCluster  Verdict
		insideRefusedFor Cause
	}{
		{"no endpoint", nil, nil, Pass, Pass, Reject, NoEndpoints},
		{"some", nil, []model.Endpoint{pod(model.IPv4, 1, "far", ready)}, Forward, Forward, Forward, 0},
		{"policy Local, none here", []func(*model.Service){externalLocal}, []model.Endpoint{pod(model.IPv4, 1, "far", ready)}, Forward, Pass, Forward, 0},
		{"policy Local, none", []func(*model.Service){externalLocal, internalLocal}, nil, Pass, Pass, Reject, NoEndpoints},
		{"internal policy Local", []func(*model.Service){internalLocal}, []model.Endpoint{pod(model.IPv4, 1, "far", ready)}, Forward, Forward, Drop, NoLocalEndpoints},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc := service(model.IPv4, append(tt.service, external(model.IPv4), passThrough)...)
			d := planWeb(defaults, svc, slice(model.IPv4, "web-1", tt.endpoints...))
			for _, f := range d.Frontends {
				decide := func(from Client) Verdict { return d.Decide(Packet{From: from, To: f.Key, ToNode: true}).Verdict }
				inside, outside := tt.inside, tt.outside
				if f.Kind == ClusterIP {
					inside, outside = tt.insideOfCluster, tt.insideOfCluster
					if inside != Forward {
						wantEqual(t, "cause", tt.insideRefusedFor, f.Route.Empty.Cause)
					}
				}
				wantEqual(t, f.Text()+" from a node", inside, decide(NodeClient))
				wantEqual(t, f.Text()+" from outside", outside, decide(OutsideClient))
			}
		})
	}
}

// An address of mode Router is left alone where the Service itself does not ask for it, and no other one.
func TestRoutedAddress(t *testing.T) {
	f := model.IPv4
	svc := service(f, external(f), func(s *model.Service) {
		s.LoadBalancerIPs, s.RoutedIPs = addrs("198.51.100.7", "198.51.100.8"), addrs("198.51.100.8")
	})
	d := planWeb(defaults, svc)
	for _, frontend := range d.Frontends {
		want := Reject
		if frontend.Addr == netip.MustParseAddr("198.51.100.8") {
			want = Pass
		}
		wantEqual(t, frontend.Text(), want, d.Decide(Packet{From: OutsideClient, To: frontend.Key, ToNode: true}).Verdict)
	}
}

// The kernel's balancer takes all packets to an address: it does not serve where some are to be left alone.
func TestPassThroughIsNotDelegated(t *testing.T) {
	cfg := defaults
	cfg.Balancer = Balancer{Name: "a balancer"}
	cfg.Algorithms = model.NewAlgorithms(model.LeastConnections)
	svc := service(model.IPv4, external(model.IPv4), func(s *model.Service) {
		s.PassThrough, s.Algorithm, s.AlgorithmChosen = true, model.LeastConnections, true
	})
	d := planWeb(cfg, svc, slice(model.IPv4, "web-1", pod(model.IPv4, 1, "far", ready)))
	for _, f := range d.Frontends {
		wantEqual(t, f.Text()+" is delegated", f.Kind == ClusterIP, f.Route.Delegated())
		wantEqual(t, f.Text()+" counts connections", f.Kind == ClusterIP, f.Route.Algorithm == model.LeastConnections)
	}
	if n := len(d.Problems[model.ServiceObject(svc.Name)]); n != 1 {
		t.Errorf("%d problems, want 1", n)
	}
}

// Node ports at loopback addresses follow the traffic policy where that is asked for, and are closed without an
// endpoint.
func TestLoopbackRoute(t *testing.T) {
	svc := service(model.IPv4, external(model.IPv4), externalLocal)
	at := NodePortKey(model.IPv4, 30080, model.TCP)
	to := Packet{From: NodeClient, To: Key{Addr: loopback(model.IPv4), Port: 30080, Protocol: model.TCP}}
	for _, tt := range []struct {
		name      string
		local     bool
		endpoints []model.Endpoint
		verdict   Verdict
	}{
		{"all", false, []model.Endpoint{pod(model.IPv4, 1, "far", ready)}, Forward},
		{"none here", true, []model.Endpoint{pod(model.IPv4, 1, "far", ready)}, Reject},
		{"none", false, nil, Reject},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := defaults
			cfg.LoopbackLocal = tt.local
			cfg.NodePortAddresses.Loopback = addrs("127.0.0.1")
			d := planWeb(cfg, svc, slice(model.IPv4, "web-1", tt.endpoints...))
			route := d.Settings.LoopbackRoute(d.Frontends[at])
			wantEqual(t, "verdict of the route", tt.verdict, route.Verdict())
			wantEqual(t, "decision", tt.verdict, d.Decide(to).Verdict)
		})
	}
}

// Node ports that are not served at loopback addresses are left alone there, unless they are to be rejected.
func TestUnservedLoopback(t *testing.T) {
	for rule, want := range map[UnservedLoopback]Verdict{UnservedPass: Pass, UnservedCount: Pass, UnservedReject: Reject} {
		cfg := defaults
		cfg.UnservedLoopback = rule
		d := planWeb(cfg, service(model.IPv4, external(model.IPv4)))
		to := Key{Addr: loopback(model.IPv4), Port: 30080, Protocol: model.TCP}
		wantEqual(t, "a node port", want, d.Decide(Packet{From: NodeClient, To: to}).Verdict)
		to.Port++
		wantEqual(t, "another port", Pass, d.Decide(Packet{From: NodeClient, To: to}).Verdict)
	}
}
