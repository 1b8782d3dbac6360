package plan

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/model"
)

const noFamily = " is of a family that the Service has no ClusterIP of"

// http is the port of most Services here.
var http = []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: 30080}}

var frontendTests = []struct {
	name     string
	in       model.Service
	noExtIPs bool
	want     []string
	problems []string
}{
	{
		name: "ClusterIP only",
		in: model.Service{ClusterIPs: addrs("10.96.0.1"), Ports: []model.ServicePort{
			{Name: "http", Protocol: model.TCP, Port: 80},
		}},
		want: []string{"10.96.0.1:80/TCP ClusterIP web:http"},
	},
	{
		name: "every kind",
		in: model.Service{ClusterIPs: addrs("10.96.0.1"), LoadBalancerIPs: addrs("203.0.113.1"),
			ExternalIPs: addrs("198.51.100.1", "198.51.100.2"), Ports: http},
		want: []string{
			"0.0.0.0:30080/TCP NodePort web:http",
			"10.96.0.1:80/TCP ClusterIP web:http",
			"198.51.100.1:80/TCP ExternalIP web:http",
			"198.51.100.2:80/TCP ExternalIP web:http",
			"203.0.113.1:80/TCP LoadBalancerIP web:http",
		},
	},
	{
		name: "dual-stack has frontends of both families",
		in: model.Service{ClusterIPs: addrs("fd00:96::1", "10.96.0.1"),
			LoadBalancerIPs: addrs("203.0.113.1", "2001:db8::1"), Ports: http},
		want: []string{
			"0.0.0.0:30080/TCP NodePort web:http",
			"10.96.0.1:80/TCP ClusterIP web:http",
			"203.0.113.1:80/TCP LoadBalancerIP web:http",
			"[::]:30080/TCP NodePort web:http",
			"[2001:db8::1]:80/TCP LoadBalancerIP web:http",
			"[fd00:96::1]:80/TCP ClusterIP web:http",
		},
	},
	{
		name: "one number for three protocols",
		in: model.Service{ClusterIPs: addrs("10.96.0.1"), Ports: []model.ServicePort{
			{Name: "t", Protocol: model.TCP, Port: 53},
			{Name: "u", Protocol: model.UDP, Port: 53},
			{Name: "s", Protocol: model.SCTP, Port: 53},
		}},
		want: []string{
			"10.96.0.1:53/TCP ClusterIP web:t",
			"10.96.0.1:53/UDP ClusterIP web:u",
			"10.96.0.1:53/SCTP ClusterIP web:s",
		},
	},
	{
		name:     "external IPs switched off",
		in:       model.Service{ClusterIPs: addrs("10.96.0.1"), ExternalIPs: addrs("198.51.100.1"), Ports: http},
		noExtIPs: true,
		want: []string{
			"0.0.0.0:30080/TCP NodePort web:http",
			"10.96.0.1:80/TCP ClusterIP web:http",
		},
		problems: []string{"spec.externalIPs: external IPs are switched off on this node"},
	},
	{
		name: "external addresses of a family that the Service does not have",
		in: model.Service{ClusterIPs: addrs("fd00:96::1"), LoadBalancerIPs: addrs("203.0.113.1"),
			ExternalIPs: addrs("198.51.100.1", "2001:db8::1"), Ports: http},
		want: []string{
			"[::]:30080/TCP NodePort web:http",
			"[2001:db8::1]:80/TCP ExternalIP web:http",
			"[fd00:96::1]:80/TCP ClusterIP web:http",
		},
		problems: []string{
			"status.loadBalancer.ingress: 203.0.113.1" + noFamily,
			"spec.externalIPs: 198.51.100.1" + noFamily,
		},
	},
	{
		name: "one address in several fields is one frontend",
		in: model.Service{ClusterIPs: addrs("10.96.0.1"), LoadBalancerIPs: addrs("203.0.113.1", "10.96.0.1"),
			ExternalIPs: addrs("203.0.113.1", "10.96.0.1", "198.51.100.1", "198.51.100.1"), Ports: http},
		want: []string{
			"0.0.0.0:30080/TCP NodePort web:http",
			"10.96.0.1:80/TCP ClusterIP web:http",
			"198.51.100.1:80/TCP ExternalIP web:http",
			"203.0.113.1:80/TCP LoadBalancerIP web:http",
		},
	},
	{
		name: "addresses that nothing can answer on",
		in: model.Service{ClusterIPs: addrs("10.96.0.1", "fd00:96::1"),
			LoadBalancerIPs: addrs("0.0.0.0", "127.0.0.1", "::ffff:203.0.113.1", "2001:db8::1%eth0"),
			ExternalIPs:     addrs("224.0.0.1"),
			Ports:           []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}}},
		want: []string{
			"10.96.0.1:80/TCP ClusterIP web:http",
			"[fd00:96::1]:80/TCP ClusterIP web:http",
		},
		problems: []string{
			"status.loadBalancer.ingress: 0.0.0.0 is the unspecified address",
			"status.loadBalancer.ingress: 127.0.0.1 is a loopback address",
			"status.loadBalancer.ingress: ::ffff:203.0.113.1 is an IPv4 address written as IPv6",
			"status.loadBalancer.ingress: 2001:db8::1%eth0 has a zone",
			"spec.externalIPs: 224.0.0.1 is a multicast address",
		},
	},
	{
		name: "no ports",
		in:   model.Service{ClusterIPs: addrs("10.96.0.1")},
		want: []string{},
	},
}

func TestFrontendsOfAService(t *testing.T) {
	for _, tt := range frontendTests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Name = named("web")
			d := planWeb(Config{NodeName: here, NoExternalIPs: tt.noExtIPs}, &tt.in)
			wantEqual(t, "frontends", tt.want, frontendList(d))
			wantEqual(t, "problems", tt.problems, problemList(d, "Service default/web"))
			for _, ip := range tt.in.ClusterIPs {
				if _, ok := d.ClusterIPs[ip]; !ok {
					t.Errorf("ClusterIP %s is not in use", ip)
				}
			}
			wantEqual(t, "ClusterIPs in use", len(tt.in.ClusterIPs), len(d.ClusterIPs))
		})
	}
}

func TestBadClusterIPIsReported(t *testing.T) {
	d := planWeb(defaults, service(model.IPv4, func(s *model.Service) {
		s.ClusterIPs = append(s.ClusterIPs, netip.Addr{})
		s.Ports[0].NodePort = 30080
	}))
	wantEqual(t, "frontends", []string{
		"0.0.0.0:30080/TCP NodePort web:http",
		"10.96.0.1:80/TCP ClusterIP web:http",
	}, frontendList(d))
	wantEqual(t, "problems", []string{"spec.clusterIPs: invalid IP is not an address"}, problemList(d, "Service default/web"))
	wantEqual(t, "ClusterIPs in use", map[netip.Addr]struct{}{clusterIP(model.IPv4): {}}, d.ClusterIPs)
}

func TestPrecedenceOfFields(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		d := planWeb(defaults, service(f, func(s *model.Service) {
			for n := range 100 {
				s.LoadBalancerIPs = append(s.LoadBalancerIPs, vip(f, 1+n*37%100))
				s.ExternalIPs = append(s.ExternalIPs, vip(f, 1+n*73%100))
			}
		}))
		wantEqual(t, "number of frontends", 101, len(d.Frontends))
		for key, frontend := range d.Frontends {
			if frontend.Kind == ExternalIP {
				t.Errorf("%s is an external IP", key)
			}
		}
	})
}

func TestAffinityOnEveryFrontend(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		d := planWeb(defaults, service(f, external(f), func(s *model.Service) { s.Affinity = 10800 }))
		for key, frontend := range d.Frontends {
			if frontend.Affinity != 10800 {
				t.Errorf("%s has affinity %d", key, frontend.Affinity)
			}
		}
		wantEqual(t, "number of frontends", 4, len(d.Frontends))
		if got := frontendAt(t, planWeb(defaults, service(f)), clusterIP(f)).Affinity; got != 0 {
			t.Errorf("without affinity: %d", got)
		}
	})
}

func TestMasquerade(t *testing.T) {
	cluster := Config{NodeName: here, DetectLocal: DetectClusterCIDR, ClusterCIDRs: prefixes("10.1.0.0/16", "fd00:1::/64")}
	all := cluster
	all.MasqueradeAll = true
	own := all
	own.Limits.OwnSource = true
	tests := []struct {
		name               string
		cfg                Config
		edit               func(*model.Service)
		clusterIP, outward Masquerade
	}{
		{"policy Cluster", cluster, func(*model.Service) {}, MasqueradeOffCluster, MasqueradeAlways},
		{"policy Cluster without a detector", defaults, func(*model.Service) {}, MasqueradeNever, MasqueradeAlways},
		{"external policy Local", cluster, externalLocal, MasqueradeOffCluster, MasqueradeNode},
		{"external policy Local without a detector", defaults, externalLocal, MasqueradeNever, MasqueradeNode},
		{"internal policy Local", cluster, internalLocal, MasqueradeOffCluster, MasqueradeAlways},
		{"masqueradeAll is for ClusterIPs", all, externalLocal, MasqueradeAlways, MasqueradeNode},
		{"masqueradeAll without a detector", Config{NodeName: here, MasqueradeAll: true}, externalLocal, MasqueradeAlways, MasqueradeNode},
		{"the mechanism decides", own, func(*model.Service) {}, MasqueradeUnknown, MasqueradeUnknown},
		{"the mechanism keeps the sources of policy Local", own, externalLocal, MasqueradeUnknown, MasqueradeNever},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, f model.Family) {
				d := planWeb(tt.cfg, service(f, external(f), tt.edit))
				for _, frontend := range d.Frontends {
					want := tt.outward
					if frontend.Kind == ClusterIP {
						want = tt.clusterIP
					}
					if frontend.Masquerade != want {
						t.Errorf("%s: masquerade %s, want %s", frontend.Kind, frontend.Masquerade, want)
					}
				}
			})
		})
	}
}

func TestDetectorOfOneFamily(t *testing.T) {
	cfg := Config{NodeName: here, DetectLocal: DetectClusterCIDR, ClusterCIDRs: prefixes("10.1.0.0/16")}
	d := planWeb(cfg, service(model.IPv4, func(s *model.Service) {
		s.ClusterIPs = append(s.ClusterIPs, clusterIP(model.IPv6))
	}))
	wantEqual(t, "IPv4", MasqueradeOffCluster, frontendAt(t, d, clusterIP(model.IPv4)).Masquerade)
	wantEqual(t, "IPv6", MasqueradeNever, frontendAt(t, d, clusterIP(model.IPv6)).Masquerade)
}

func TestSourceRanges(t *testing.T) {
	tests := []struct {
		name   string
		ranges []string // nil means none given, not even invalid ones
		lbIP   string
		want   []string
	}{
		{"one range", []string{"203.0.113.0/24"}, "198.51.100.1", []string{"203.0.113.0/24"}},
		{"a list without a valid range admits nobody", []string{}, "198.51.100.1", nil},
		{
			"ranges are masked and sorted, and those within others left out",
			[]string{"203.0.113.77/24", "10.0.0.0/8", "10.2.0.0/16", "203.0.113.0/24"}, "198.51.100.1",
			[]string{"10.0.0.0/8", "203.0.113.0/24"},
		},
		{
			"a range that admits the node admits the load balancer IP",
			[]string{"192.0.2.0/24"}, "198.51.100.1",
			[]string{"192.0.2.0/24", "198.51.100.1/32"},
		},
		{"unless it is admitted already", []string{"192.0.2.0/24", "198.51.0.0/16"}, "198.51.100.1", []string{"192.0.2.0/24", "198.51.0.0/16"}},
		{"everybody", []string{"0.0.0.0/0"}, "198.51.100.1", []string{"0.0.0.0/0"}},
		{"IPv6", []string{"2001:db8:9::1/48"}, "2001:db8:1::1", []string{"2001:db8:9::/48"}},
		{
			"IPv6 range that admits the node",
			[]string{"2001:db8:2::/64", "2001:db8:9::/48"}, "2001:db8:1::1",
			[]string{"2001:db8:1::1/128", "2001:db8:2::/64", "2001:db8:9::/48"},
		},
		{"the node admitted in the other family only", []string{"2001:db8:2::/64", "203.0.113.0/24"}, "198.51.100.1", []string{"203.0.113.0/24"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lbIP := addrs(tt.lbIP)
			f := model.FamilyOf(lbIP[0])
			d := planWeb(defaults, service(f, external(f), func(s *model.Service) {
				s.LoadBalancerIPs = lbIP
				s.Filtered = true
				s.SourceRanges = prefixes(tt.ranges...)
			}))
			for _, frontend := range d.Frontends {
				want, sources := frontend.Kind == LoadBalancerIP, prefixes(tt.want...)
				if !want {
					sources = nil
				}
				wantEqual(t, frontend.Kind.String()+" filtered", want, frontend.Filtered)
				wantEqual(t, frontend.Kind.String()+" sources", sources, frontend.Sources)
			}
		})
	}
}

// On request source ranges count at all external addresses. A node port answers at the loopback address where
// they admit the node.
func TestSourceRangesAtAllExternalAddresses(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		client, node := hostPrefix(nodeIPOf(f, 99)), hostPrefix(nodeIPOf(f, 1))
		d := planWeb(defaults, service(f, external(f), func(s *model.Service) {
			s.Filtered, s.FilterAll, s.SourceRanges = true, true, append(s.SourceRanges, client, node)
		}))
		for _, frontend := range d.Frontends {
			want := prefixes()
			switch frontend.Kind {
			case NodePort:
				want = mergePrefixes(append(want, client, node, hostPrefix(loopback(f))))
			case ExternalIP, LoadBalancerIP:
				want = mergePrefixes(append(want, client, node, hostPrefix(frontend.Addr)))
			}
			wantEqual(t, frontend.Kind.String()+" filtered", frontend.Kind != ClusterIP, frontend.Filtered)
			if frontend.Filtered {
				wantEqual(t, frontend.Kind.String()+" sources", want, frontend.Sources)
			}
		}
	})
}

func TestExternalIPRanges(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		cfg := defaults
		svc := service(f, external(f))
		cfg.ExternalIPRanges = []netip.Prefix{hostPrefix(nodeIPOf(f, 1))}
		d := planWeb(cfg, svc)
		for _, frontend := range d.Frontends {
			if frontend.Kind == ExternalIP {
				t.Errorf("%s is served", frontend.Text())
			}
		}
		problems := d.Problems[model.ServiceObject(svc.Name)]
		if len(problems) != len(svc.ExternalIPs) || !strings.Contains(problems[0].Remedy, "--external-ip-ranges") {
			t.Errorf("problems %v", problems)
		}
		cfg.ExternalIPRanges = append(cfg.ExternalIPRanges, hostPrefix(svc.ExternalIPs[0]))
		frontendAt(t, planWeb(cfg, svc), svc.ExternalIPs[0])
	})
}

// A family that the ranges say nothing of is not filtered, and that is reported.
func TestSourceRangesOfOneFamily(t *testing.T) {
	d := planWeb(defaults, service(model.IPv4, func(s *model.Service) {
		s.ClusterIPs = append(s.ClusterIPs, clusterIP(model.IPv6))
		s.LoadBalancerIPs = addrs("198.51.100.1", "2001:db8:1::1")
		s.Filtered, s.SourceRanges = true, prefixes("10.0.0.0/8")
	}))
	v4, v6 := frontendAt(t, d, addrs("198.51.100.1")[0]), frontendAt(t, d, addrs("2001:db8:1::1")[0])
	wantEqual(t, "IPv4 sources", prefixes("10.0.0.0/8"), v4.Sources)
	wantEqual(t, "IPv6 filtered", false, v6.Filtered)
	problems := d.Problems[model.Object{Kind: "Service", Namespace: "default", Name: "web"}]
	if len(problems) != 1 || problems[0].Field != "spec.loadBalancerSourceRanges" ||
		!strings.Contains(problems[0].Reason, "IPv6") || !strings.Contains(problems[0].Remedy, "::/0") {
		t.Errorf("problems %v", problems)
	}
}

func TestSourceRangesWithoutNode(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		only := hostPrefix(nodeIPOf(f, 7))
		d := fromScratch(defaults, stateOf(
			model.SetNode{},
			model.SetHostIPs{IPs: addrs("127.0.0.1", "192.0.2.7", "2001:db8:2::7")},
			model.SetService{Service: service(f, external(f), func(s *model.Service) {
				s.Filtered = true
				s.SourceRanges = append(s.SourceRanges, only)
			})},
		))
		got := frontendAt(t, d, vip(f, 1)).Sources
		want := mergePrefixes(append(prefixes(), only, hostPrefix(vip(f, 1))))
		wantEqual(t, "sources", want, got)
	})
}

func TestSourceRangesWithConfiguredNodeIP(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		only := hostPrefix(nodeIPOf(f, 9))
		cfg := defaults
		cfg.NodeIP = nodeIPOf(f, 9)
		d := planWeb(cfg, service(f, external(f), func(s *model.Service) {
			s.Filtered = true
			s.SourceRanges = append(s.SourceRanges, only)
		}))
		want := mergePrefixes(append(prefixes(), only, hostPrefix(vip(f, 1))))
		wantEqual(t, "sources", want, frontendAt(t, d, vip(f, 1)).Sources)
	})
}
