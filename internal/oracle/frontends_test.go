package oracle_test

import (
	"net/netip"
	"testing"
	"time"

	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestFrontends(t *testing.T) {
	play(t, []scenario{
		{
			name: "a Service answers on its ClusterIP, external IP, load balancer IP and node port",
			want: []string{
				"outside > cluster:80 = forward pod-1* far-1*",
				"outside > external:80 = forward pod-1* far-1*",
				"outside > lb:80 = forward pod-1* far-1*",
				"outside > node:30080 = forward pod-1* far-1*",
			},
		}, {
			name: "and nowhere else",
			want: []string{
				"outside > external:81 = pass",
				"outside > lb:30080 = pass",
				"outside > node:80 = pass",
				"outside > node:30081 = pass",
				"outside > external:80/udp = pass",
				"outside > node:30080/udp = pass",
				"outside > elsewhere:80 = pass",
				"outside > pod-1:8080 = pass",
			},
		}, {
			name: "one port number may serve each protocol differently",
			given: func(s *setting) {
				s.web.Ports = append(s.web.Ports,
					model.ServicePort{Name: "u", Protocol: model.UDP, Port: 80, NodePort: 30080},
					model.ServicePort{Name: "s", Protocol: model.SCTP, Port: 80})
				s.slice.Ports = append(s.slice.Ports,
					model.SlicePort{Name: "u", Protocol: model.UDP, Port: 8081},
					model.SlicePort{Name: "s", Protocol: model.SCTP, Port: 8082})
			},
			want: []string{
				"pod-2 > cluster:80 = forward pod-1 far-1",
				"pod-2 > cluster:80/udp = forward pod-1:8081 far-1:8081",
				"pod-2 > cluster:80/sctp = forward pod-1:8082 far-1:8082",
				"outside > node:30080/udp = forward pod-1:8081* far-1:8081*",
				"outside > node:30080/sctp = pass",
			},
		}, {
			name:  "external IPs can be switched off",
			given: func(s *setting) { s.Config.NoExternalIPs = true },
			want: []string{
				"outside > external:80 = pass",
				"outside > lb:80 = forward pod-1* far-1*",
				"outside > node:30080 = forward pod-1* far-1*",
			},
		}, {
			name:  "a port without a node port has none",
			given: func(s *setting) { s.web.Ports[0].NodePort = 0 },
			want:  []string{"outside > node:0 = pass", "outside > node:30080 = pass"},
		}, {
			name: "a Service has frontends only in the families of its ClusterIPs",
			given: func(s *setting) {
				s.web.ClusterIPs = []netip.Addr{addrIn(otherFamily(s.family), "cluster")}
			},
			want: []string{
				"outside > external:80 = pass",
				"outside > lb:80 = pass",
				"outside > node:30080 = pass",
				"outside > cluster:80 = drop",
			},
		},
	})
}

func TestAddressesThatServeNothing(t *testing.T) {
	play(t, []scenario{
		{
			name: "unknown ports of a ClusterIP in use are rejected",
			want: []string{
				"pod-2 > cluster:81 = reject",
				"outside > cluster:30080 = reject",
				"node > cluster:80/udp = reject",
			},
		}, {
			name: "unused addresses of the service CIDRs are dropped",
			want: []string{"pod-2 > unused:80 = drop", "outside > unused:80/udp = drop"},
		}, {
			name:  "without a ServiceCIDR object they are left alone",
			given: func(s *setting) { s.ServiceCIDRs = nil },
			want:  []string{"pod-2 > unused:80 = pass", "pod-2 > cluster:81 = reject"},
		}, {
			name:  "a mode that looks at frontends only leaves both alone",
			given: func(s *setting) { s.Config.FrontendsOnly = true },
			want: []string{
				"pod-2 > cluster:81 = pass", "outside > unused:80/udp = pass",
				"pod-2 > cluster:80 = forward pod-1 far-1",
			},
		}, {
			name: "an external IP out of the service CIDR serves its ports and no other",
			given: func(s *setting) {
				s.web.ExternalIPs = append(s.web.ExternalIPs, s.addr("unused"))
			},
			want: []string{
				"pod-2 > unused:80 = forward pod-1* far-1*",
				"pod-2 > unused:81 = drop",
			},
		}, {
			name: "loopback is left alone, whatever the node port addresses",
			given: func(s *setting) {
				s.Config.NodePortAddresses = plan.NodePortAddresses{All: true, Prefixes: bothFamilies(rangeIn, "all")}
			},
			want: []string{"loopback > loopback:30080 = pass"},
		}, {
			name:  "loopback is left alone, even as an external IP",
			given: func(s *setting) { s.web.ExternalIPs = []netip.Addr{s.addr("loopback")} },
			want:  []string{"loopback > loopback:80 = pass"},
		},
	})
}

func TestNodePortAddresses(t *testing.T) {
	addresses := func(a plan.NodePortAddresses) func(*setting) {
		return func(s *setting) { s.Config.NodePortAddresses = a }
	}
	const served, not = " = forward pod-1* far-1*", " = pass"
	play(t, []scenario{
		{
			name: "by default the primary IPs serve",
			want: []string{"outside > node:30080" + served, "outside > node-2nd:30080" + not, "pod-2 > bridge:30080" + not},
		}, {
			name:  "primary says so explicitly",
			given: addresses(plan.NodePortAddresses{Primary: true}),
			want:  []string{"outside > node:30080" + served, "outside > node-2nd:30080" + not},
		}, {
			name:  "all means every address of the machine",
			given: addresses(plan.NodePortAddresses{All: true}),
			want: []string{
				"outside > node:30080" + served, "outside > node-2nd:30080" + served,
				"pod-2 > bridge:30080" + served, "outside > elsewhere:30080" + not,
			},
		}, {
			name:  "prefixes choose among the addresses of the machine",
			given: addresses(plan.NodePortAddresses{Prefixes: bothFamilies(rangeIn, "node pods")}),
			want: []string{
				"outside > node:30080" + not, "outside > node-2nd:30080" + not,
				"pod-2 > bridge:30080" + served, "pod-2 > pod-1:30080" + not,
			},
		}, {
			name:  "settings add up",
			given: addresses(plan.NodePortAddresses{Primary: true, Prefixes: bothFamilies(rangeIn, "node pods")}),
			want: []string{
				"outside > node:30080" + served, "outside > node-2nd:30080" + not, "pod-2 > bridge:30080" + served,
			},
		}, {
			name: "without a Node object the first reachable address of the machine is primary",
			given: func(s *setting) {
				s.Node = nil
				s.HostIPs = bothFamilies(addrIn, "loopback", "link-local", "node-2nd", "node")
			},
			want: []string{"outside > node-2nd:30080" + served, "outside > node:30080" + not},
		}, {
			name: "without a Node object and a reachable address there is no primary IP",
			given: func(s *setting) {
				s.Node = nil
				s.HostIPs = bothFamilies(addrIn, "loopback", "link-local")
			},
			want: []string{"outside > node:30080" + not, "outside > link-local:30080" + not},
		}, {
			name: "a Node object without an address of a family has no primary IP there",
			given: func(s *setting) {
				s.Node.IPs = []netip.Addr{addrIn(otherFamily(s.family), "node")}
			},
			want: []string{"outside > node:30080" + not, "outside > node-2nd:30080" + not},
		},
	})
}

func TestNodePortsOnLocalRoutes(t *testing.T) {
	play(t, []scenario{
		{
			name:  "all takes in link-local addresses",
			given: func(s *setting) { s.Config.NodePortAddresses.All = true },
			want:  []string{"outside > link-local:30080 = forward pod-1* far-1*"},
		}, {
			name: "all takes in addresses that are local by a route",
			given: func(s *setting) {
				s.Config.NodePortAddresses.All = true
				s.LocalRoutes = []netip.Prefix{netip.PrefixFrom(addrIn(s.family, "elsewhere"), 28).Masked()}
			},
			want: []string{"outside > elsewhere:30080 = forward pod-1* far-1*"},
		}, {
			name: "ranges do not",
			given: func(s *setting) {
				s.Config.NodePortAddresses.Prefixes = bothFamilies(rangeIn, "nodes")
				s.LocalRoutes = []netip.Prefix{netip.PrefixFrom(addrIn(s.family, "elsewhere"), 28).Masked()}
			},
			want: []string{"outside > elsewhere:30080 = pass", "outside > node:30080 = forward pod-1* far-1*"},
		}, {
			name: "a range of all addresses is all of its family",
			given: func(s *setting) {
				s.Config.NodePortAddresses.Prefixes = bothFamilies(rangeIn, "all")
				s.LocalRoutes = []netip.Prefix{netip.PrefixFrom(addrIn(s.family, "elsewhere"), 28).Masked()}
			},
			want: []string{"outside > elsewhere:30080 = forward pod-1* far-1*"},
		}, {
			name: "a family without a range is all of it",
			given: func(s *setting) {
				s.Config.NodePortAddresses.Prefixes = []netip.Prefix{rangeIn(otherFamily(s.family), "nodes")}
			},
			want: []string{"outside > node-2nd:30080 = forward pod-1* far-1*"},
		},
	})
}

func TestTwoClaimsOnOneFrontend(t *testing.T) {
	old, young := time.Unix(1000, 0), time.Unix(2000, 0)
	// rival adds a Service with an endpoint of its own and the same external
	// and load balancer IPs and node port as web.
	rival := func(name string, webCreated, created time.Time) func(*setting) {
		return func(s *setting) {
			s.web.Created = webCreated
			r := newService(name, "cluster-2")
			r.Created = created
			r.ExternalIPs = s.web.ExternalIPs
			r.LoadBalancerIPs = s.web.LoadBalancerIPs
			r.Ports[0].NodePort = 30080
			s.Services = append(s.Services, r)
			s.newSlice("rival", name, s.family).Endpoints = []model.Endpoint{newEndpoint(s.family, "far-2", ready)}
		}
	}
	const webServes, rivalServes = " = forward pod-1* far-1*", " = forward rival: far-2*"
	play(t, []scenario{
		{
			name:  "the older Service keeps what both claim",
			given: rival("rival", young, old),
			want: []string{
				"outside > external:80" + rivalServes, "outside > lb:80" + rivalServes, "outside > node:30080" + rivalServes,
				"outside > cluster:80" + webServes, "outside > cluster-2:80" + rivalServes,
			},
		}, {
			name:  "the younger one waits",
			given: rival("rival", old, young),
			want:  []string{"outside > external:80" + webServes, "outside > lb:80" + webServes, "outside > node:30080" + webServes},
		}, {
			name:  "no time of creation is the oldest",
			given: rival("rival", old, time.Time{}),
			want:  []string{"outside > external:80" + rivalServes},
		}, {
			name:  "of the same age, the first by name",
			given: rival("rival", old, old),
			want:  []string{"outside > external:80" + rivalServes, "outside > node:30080" + rivalServes},
		}, {
			name:  "of the same age, the last by name waits",
			given: rival("zzz", old, old),
			want:  []string{"outside > external:80" + webServes, "outside > node:30080" + webServes},
		}, {
			name: "namespaces are compared before names",
			given: func(s *setting) {
				rival("zzz", old, old)(s)
				s.Services[1].Name.Namespace = "a"
				s.Slices[len(s.Slices)-1].Name.Namespace = "a"
			},
			want: []string{"outside > external:80 = forward zzz: far-2*"},
		}, {
			name: "the winner keeps it even without endpoints",
			given: func(s *setting) {
				rival("rival", young, old)(s)
				s.Slices = s.Slices[:2]
			},
			want: []string{"outside > external:80 = reject rival:"},
		}, {
			name: "an older external IP does not capture a ClusterIP",
			given: func(s *setting) {
				rival("rival", young, old)(s)
				s.Services[1].ExternalIPs = []netip.Addr{s.addr("cluster")}
			},
			want: []string{"pod-2 > cluster:80 = forward pod-1 far-1", "pod-2 > cluster:81 = reject"},
		}, {
			name: "different ports of one external IP belong to different Services",
			given: func(s *setting) {
				rival("rival", young, old)(s)
				s.Services[1].Ports[0].Port = 81
			},
			want: []string{"outside > external:80" + webServes, "outside > external:81" + rivalServes},
		}, {
			name: "a specific address goes before an older node port",
			given: func(s *setting) {
				rival("rival", old, young)(s)
				s.Services[1].ExternalIPs = []netip.Addr{s.addr("node")}
				s.Services[1].Ports[0].Port = 30080
			},
			want: []string{"outside > node:30080" + rivalServes},
		},
	})
}

// Policy and source ranges show which field of a Service a frontend is of.
func TestTwoFieldsWithOneAddress(t *testing.T) {
	play(t, []scenario{
		{
			name: "ClusterIP before load balancer IP and external IP",
			given: func(s *setting) {
				s.web.Filtered = true
				s.web.LoadBalancerIPs = []netip.Addr{s.addr("cluster")}
				s.web.ExternalIPs = []netip.Addr{s.addr("cluster")}
			},
			want: []string{"pod-2 > cluster:80 = forward pod-1 far-1"},
		}, {
			name: "load balancer IP before external IP",
			given: func(s *setting) {
				s.web.Filtered = true
				s.web.ExternalIPs = []netip.Addr{s.addr("lb")}
			},
			want: []string{"outside > lb:80 = drop"},
		}, {
			name: "load balancer IP before node port",
			given: func(s *setting) {
				s.web.Filtered = true
				s.web.LoadBalancerIPs = []netip.Addr{s.addr("node")}
				s.web.Ports[0].Port = 30080
			},
			want: []string{"outside > node:30080 = drop"},
		},
	})
}

func otherFamily(f model.Family) model.Family {
	if f == model.IPv4 {
		return model.IPv6
	}
	return model.IPv4
}
