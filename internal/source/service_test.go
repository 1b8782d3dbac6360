package source

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/model"
	"sluice/internal/testkit"
)

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

// fields lists where the problems are, which readers need first.
func fields(problems []model.Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.Field)
	}
	return out
}

// Texts as addresses.
var (
	addrs = testkit.Addrs
	cidrs = testkit.Prefixes
)

func service(edit func(*v1.Service)) *v1.Service {
	svc := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: v1.ServiceSpec{
			Type:      v1.ServiceTypeClusterIP,
			ClusterIP: "10.96.0.1",
			Ports:     []v1.ServicePort{{Name: "http", Port: 80}},
		},
	}
	edit(svc)
	return svc
}

func loadBalancer(edit func(*v1.Service)) *v1.Service {
	return service(func(svc *v1.Service) {
		svc.Spec.Type = v1.ServiceTypeLoadBalancer
		edit(svc)
	})
}

func TestServicesOfOthersAreLeftOut(t *testing.T) {
	for name, in := range map[string]*v1.Service{
		"headless":          service(func(s *v1.Service) { s.Spec.ClusterIP = "None" }),
		"headless by list":  service(func(s *v1.Service) { s.Spec.ClusterIPs = []string{"None"} }),
		"ExternalName":      service(func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeExternalName }),
		"of another proxy":  service(func(s *v1.Service) { s.Labels = map[string]string{LabelServiceProxyName: "other"} }),
		"of a proxy unsaid": service(func(s *v1.Service) { s.Labels = map[string]string{LabelServiceProxyName: ""} }),
	} {
		t.Run(name, func(t *testing.T) {
			if out, ok := (Proxy{}).Service(in); ok {
				t.Errorf("the Service was taken over: %+v", out)
			}
		})
	}
}

type serviceTest struct {
	name     string
	in       *v1.Service
	want     *model.Service
	problems []string
}

// want returns what becomes of service, with an edit.
func want(edit func(*model.Service)) *model.Service {
	out := &model.Service{
		Name:       model.Name{Namespace: "default", Name: "web"},
		ClusterIPs: addrs("10.96.0.1"),
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	edit(out)
	return out
}

var plain = want(func(*model.Service) {})

func (tt serviceTest) run(t *testing.T) {
	got, ok := Proxy{}.Service(tt.in)
	if !ok {
		t.Fatal("the Service was left out")
	}
	if diff := cmp.Diff(tt.want, got, compareAddrs, comparePrefixes, cmpopts.IgnoreFields(model.Service{}, "Problems")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(tt.problems, fields(got.Problems)); diff != "" {
		t.Errorf("problems (-want +got)\n%s", diff)
	}
	for _, p := range got.Problems {
		if p.Object.String() != "Service default/web" || p.Reason == "" || p.Remedy == "" {
			t.Errorf("a problem does not say what, why and what to do: %+v", p)
		}
	}
}

func TestAddressesOfServices(t *testing.T) {
	created := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []serviceTest{
		{name: "the defaults of the API", in: service(func(*v1.Service) {}), want: plain},
		{
			name: "two families, UID and time of creation, mapped address",
			in: service(func(s *v1.Service) {
				s.UID = "b0b5"
				s.Spec.ClusterIPs = []string{"::ffff:10.96.0.1", "fd00::1"}
				s.CreationTimestamp = metav1.NewTime(created.In(time.FixedZone("east", 7200)))
			}),
			want: want(func(s *model.Service) {
				s.ClusterIPs, s.UID, s.Created = addrs("10.96.0.1", "fd00::1"), "b0b5", created
			}),
		},
		{
			name: "malformed and special ClusterIPs",
			in: service(func(s *v1.Service) {
				s.Spec.ClusterIPs = []string{"10.96.0.0x1", "0.0.0.0", "fe80::1%eth0", "127.0.0.1", "224.0.0.1", "255.255.255.255"}
			}),
			want: want(func(s *model.Service) { s.ClusterIPs = nil }),
			problems: []string{"spec.clusterIPs[0]", "spec.clusterIPs[1]", "spec.clusterIPs[2]", "spec.clusterIPs[3]",
				"spec.clusterIPs[4]", "spec.clusterIPs[5]"},
		},
		{
			name: "leading zeros are decimal",
			in: service(func(s *v1.Service) {
				s.Spec.ClusterIPs = []string{"010.096.000.041", "fd00::0001"}
				s.Spec.ExternalIPs = []string{"192.0.2.010", "192.0.2.10"}
			}),
			want: want(func(s *model.Service) {
				s.ClusterIPs, s.ExternalIPs = addrs("10.96.0.41", "fd00::1"), addrs("192.0.2.10")
			}),
		},
		{
			name:     "malformed single ClusterIP",
			in:       service(func(s *v1.Service) { s.Spec.ClusterIP = "10.96" }),
			want:     want(func(s *model.Service) { s.ClusterIPs = nil }),
			problems: []string{"spec.clusterIP"},
		},
		{
			name: "external IPs once each, bad ones left out",
			in: service(func(s *v1.Service) {
				s.Spec.ExternalIPs = []string{"192.0.2.1", "192.0.2.1", "169.254.0.1", "::1", "x", "2001:db8::1"}
			}),
			want:     want(func(s *model.Service) { s.ExternalIPs = addrs("192.0.2.1", "2001:db8::1") }),
			problems: []string{"spec.externalIPs[2]", "spec.externalIPs[3]", "spec.externalIPs[4]"},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

func TestPortsOfServices(t *testing.T) {
	for _, tt := range []serviceTest{
		{
			name: "bad ports are left out one by one",
			in: service(func(s *v1.Service) {
				s.Spec.Ports = []v1.ServicePort{
					{Name: "a", Port: 0}, {Name: "b", Port: 65536}, {Name: "c", Port: 1, Protocol: "ICMP"},
					{Name: "d", Port: 53, Protocol: v1.ProtocolUDP}, {Name: "e", Port: 65535, Protocol: v1.ProtocolSCTP},
				}
			}),
			want: want(func(s *model.Service) {
				s.Ports = []model.ServicePort{{Name: "d", Protocol: model.UDP, Port: 53}, {Name: "e", Protocol: model.SCTP, Port: 65535}}
			}),
			problems: []string{"spec.ports[0].port", "spec.ports[1].port", "spec.ports[2].protocol"},
		},
		{
			name: "a ClusterIP Service has no node ports",
			in:   service(func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30080 }),
			want: plain,
		},
		{
			name: "node ports, one missing and one malformed",
			in: service(func(s *v1.Service) {
				s.Spec.Type = v1.ServiceTypeNodePort
				s.Spec.Ports = []v1.ServicePort{{Name: "a", Port: 1, NodePort: 30001}, {Name: "b", Port: 2}, {Name: "c", Port: 3, NodePort: -5}}
			}),
			want: want(func(s *model.Service) {
				s.Ports = []model.ServicePort{
					{Name: "a", Protocol: model.TCP, Port: 1, NodePort: 30001},
					{Name: "b", Protocol: model.TCP, Port: 2},
					{Name: "c", Protocol: model.TCP, Port: 3},
				}
			}),
			problems: []string{"spec.ports[1].nodePort", "spec.ports[2].nodePort"},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

func TestPoliciesAndAffinityOfServices(t *testing.T) {
	local, cluster := v1.ServiceInternalTrafficPolicyLocal, v1.ServiceInternalTrafficPolicyCluster
	seconds := func(n int32) *v1.SessionAffinityConfig {
		return &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: &n}}
	}
	for _, tt := range []serviceTest{
		{
			name: "policies",
			in: service(func(s *v1.Service) {
				s.Spec.InternalTrafficPolicy = &local
				s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
			}),
			want: want(func(s *model.Service) { s.InternalPolicy, s.ExternalPolicy = model.PolicyLocal, model.PolicyLocal }),
		},
		{
			name: "explicit and unknown policies mean Cluster",
			in: service(func(s *v1.Service) {
				s.Spec.InternalTrafficPolicy = &cluster
				s.Spec.ExternalTrafficPolicy = "Nearby"
			}),
			want:     plain,
			problems: []string{"spec.externalTrafficPolicy"},
		},
		{
			name: "affinity by default lasts three hours",
			in:   service(func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }),
			want: want(func(s *model.Service) { s.Affinity = 10800 }),
		},
		{
			name: "affinity for a minute",
			in: service(func(s *v1.Service) {
				s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = seconds(60)
			}),
			want: want(func(s *model.Service) { s.Affinity = 60 }),
		},
		{
			name: "affinity below its range",
			in: service(func(s *v1.Service) {
				s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = seconds(-3)
			}),
			want:     want(func(s *model.Service) { s.Affinity = 1 }),
			problems: []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds"},
		},
		{
			name: "affinity above its range",
			in: service(func(s *v1.Service) {
				s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = seconds(86401)
			}),
			want:     want(func(s *model.Service) { s.Affinity = 86400 }),
			problems: []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds"},
		},
		{
			name:     "unknown affinity",
			in:       service(func(s *v1.Service) { s.Spec.SessionAffinity = "Cookie" }),
			want:     plain,
			problems: []string{"spec.sessionAffinity"},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

func TestLoadBalancers(t *testing.T) {
	vip, proxy, router := v1.LoadBalancerIPModeVIP, v1.LoadBalancerIPModeProxy, ipModeRouter
	for _, tt := range []serviceTest{
		{
			name: "ingress IPs of mode VIP only",
			in: loadBalancer(func(s *v1.Service) {
				s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{
					{IP: "198.51.100.1"}, {IP: "198.51.100.2", IPMode: &vip}, {IP: "198.51.100.3", IPMode: &proxy},
					{Hostname: "lb.example"}, {IP: "bad"},
				}
			}),
			want:     want(func(s *model.Service) { s.LoadBalancerIPs = addrs("198.51.100.1", "198.51.100.2") }),
			problems: []string{"status.loadBalancer.ingress[4].ip"},
		},
		{
			name: "ingress IPs of mode Router",
			in: loadBalancer(func(s *v1.Service) {
				s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{
					{IP: "198.51.100.1"}, {IP: "198.51.100.2", IPMode: &router}, {IP: "bad", IPMode: &router},
				}
			}),
			want: want(func(s *model.Service) {
				s.LoadBalancerIPs, s.RoutedIPs = addrs("198.51.100.1", "198.51.100.2"), addrs("198.51.100.2")
			}),
			problems: []string{"status.loadBalancer.ingress[2].ip"},
		},
		{
			name: "what belongs to load balancers is ignored elsewhere",
			in: service(func(s *v1.Service) {
				s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "198.51.100.1"}}
				s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
				s.Spec.HealthCheckNodePort = 32000
			}),
			want:     plain,
			problems: []string{"spec.loadBalancerSourceRanges"},
		},
		{
			name: "a malformed source range is left out and still filters",
			in:   loadBalancer(func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/33"} }),
			want: want(func(s *model.Service) { s.Filtered = true }),

			problems: []string{"spec.loadBalancerSourceRanges[0]"},
		},
		{
			name: "source ranges are masked and unmapped",
			in: loadBalancer(func(s *v1.Service) {
				s.Spec.LoadBalancerSourceRanges = []string{" 10.1.2.3/8 ", "::ffff:192.0.2.0/120", "2001:db8::1/32"}
			}),
			want: want(func(s *model.Service) {
				s.Filtered, s.SourceRanges = true, cidrs("10.0.0.0/8", "192.0.2.0/24", "2001:db8::/32")
			}),
		},
		{
			name: "the annotation is for cloud controllers, not for proxies",
			in: loadBalancer(func(s *v1.Service) {
				s.Annotations = map[string]string{v1.AnnotationLoadBalancerSourceRangesKey: "10.0.0.0/8, fd00::/8"}
			}),
			want: plain,
		},
		{
			name: "source ranges with leading zeros are decimal",
			in: loadBalancer(func(s *v1.Service) {
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.000/025", "010.0.0.0/8"}
			}),
			want: want(func(s *model.Service) { s.Filtered, s.SourceRanges = true, cidrs("203.0.113.0/25", "10.0.0.0/8") }),
		},
		{
			name: "health check port under policy Local",
			in: loadBalancer(func(s *v1.Service) {
				s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
				s.Spec.HealthCheckNodePort = 32000
			}),
			want: want(func(s *model.Service) { s.ExternalPolicy, s.HealthCheckNodePort = model.PolicyLocal, 32000 }),
		},
		{
			name: "no health check port under policy Cluster",
			in:   loadBalancer(func(s *v1.Service) { s.Spec.HealthCheckNodePort = 32000 }),
			want: plain,
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

func TestProblemsOfOneObjectAreBounded(t *testing.T) {
	got, _ := Proxy{}.Service(service(func(s *v1.Service) {
		s.Spec.ExternalIPs = strings.Split(strings.Repeat("bad,", 1000), ",")
	}))
	if n := len(got.Problems); n != maxProblems+1 {
		t.Fatalf("%d problems, want %d and a summary", n, maxProblems)
	}
	if last := got.Problems[maxProblems].Reason; !strings.Contains(last, "985 more") {
		t.Errorf("the summary does not count the rest: %q", last)
	}
}

// A value that is malformed, and would never come from an API server, differs from
// one that is only of no use here.
func TestMalformedValues(t *testing.T) {
	svc, _ := Proxy{}.Service(service(func(s *v1.Service) {
		s.Spec.Type = v1.ServiceTypeNodePort
		s.Spec.ClusterIPs = []string{"10.96.0.300", "127.0.0.1"}
		s.Spec.Ports = []v1.ServicePort{{Port: 70000}, {Port: 80}}
		s.Spec.SessionAffinity = "Cookie"
		s.Spec.HealthCheckNodePort = 70000
	}))
	slice, _ := Slice(slice(func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"x"}}, {Addresses: []string{"fd00::1"}}, {Addresses: []string{"127.0.0.1"}}, {}}
	}))
	malformed := map[string]bool{}
	for _, p := range append(svc.Problems, slice.Problems...) {
		malformed[p.Field] = p.Malformed
	}
	want := map[string]bool{
		"spec.clusterIPs[0]": true, "spec.clusterIPs[1]": false, "spec.ports[0].port": true, "spec.ports[1].nodePort": false,
		"spec.sessionAffinity": true, "spec.healthCheckNodePort": true,
		"endpoints[0].addresses[0]": true, "endpoints[1].addresses[0]": true, "endpoints[2].addresses[0]": false, "endpoints[3].addresses": true,
	}
	if diff := cmp.Diff(want, malformed); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
