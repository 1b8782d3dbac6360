package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice/test/lab"
)

// The addresses that the Service has for some of its life.
const (
	nodePort   = 30080
	balancerIP = "198.18.0.80"
	externalIP = "198.18.0.81"
)

// reach is the outcome of packets to each kind of address.
type reach struct{ cluster, node, balancer, external lab.Kind }

// step is a change of a Service and its effect.
type step struct {
	name   string
	change func(*corev1.ServiceSpec)
	// ingress is set in the status after the change, if not empty.
	ingress string
	want    reach
}

func (s *site) stepsThroughAllTypes(clusterIPs []string) []step {
	return []step{
		{name: "ClusterIP", change: func(*corev1.ServiceSpec) {},
			want: reach{cluster: lab.Answered, node: lab.Refused, balancer: lab.Passed, external: lab.Passed}},
		{name: "NodePort", change: func(spec *corev1.ServiceSpec) {
			spec.Type = corev1.ServiceTypeNodePort
			setNodePorts(spec, nodePort)
		}, want: reach{cluster: lab.Answered, node: lab.Answered, balancer: lab.Passed, external: lab.Passed}},
		{name: "LoadBalancer without an address", change: func(spec *corev1.ServiceSpec) {
			spec.Type = corev1.ServiceTypeLoadBalancer
		}, want: reach{cluster: lab.Answered, node: lab.Answered, balancer: lab.Passed, external: lab.Passed}},
		{name: "LoadBalancer with an address", change: func(*corev1.ServiceSpec) {}, ingress: balancerIP,
			want: reach{cluster: lab.Answered, node: lab.Answered, balancer: lab.Answered, external: lab.Passed}},
		{name: "LoadBalancer and external IP", change: func(spec *corev1.ServiceSpec) {
			spec.ExternalIPs = []string{externalIP}
		}, want: reach{cluster: lab.Answered, node: lab.Answered, balancer: lab.Answered, external: lab.Answered}},
		{name: "LoadBalancer for others", change: func(spec *corev1.ServiceSpec) {
			spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
		}, want: reach{cluster: lab.Answered, node: lab.Answered, balancer: lab.Dropped, external: lab.Answered}},
		{name: "LoadBalancer for all again", change: func(spec *corev1.ServiceSpec) {
			spec.LoadBalancerSourceRanges = nil
		}, want: reach{cluster: lab.Answered, node: lab.Answered, balancer: lab.Answered, external: lab.Answered}},
		{name: "NodePort and external IP", change: func(spec *corev1.ServiceSpec) {
			spec.Type = corev1.ServiceTypeNodePort
		}, want: reach{cluster: lab.Answered, node: lab.Answered, balancer: lab.Passed, external: lab.Answered}},
		{name: "ClusterIP and external IP", change: func(spec *corev1.ServiceSpec) {
			spec.Type = corev1.ServiceTypeClusterIP
			setNodePorts(spec, 0)
		}, want: reach{cluster: lab.Answered, node: lab.Refused, balancer: lab.Passed, external: lab.Answered}},
		{name: "ExternalName", change: func(spec *corev1.ServiceSpec) {
			*spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com", Ports: spec.Ports}
		}, want: reach{cluster: s.gone(nil).kind, node: lab.Refused, balancer: lab.Passed, external: lab.Passed}},
		{name: "ClusterIP again", change: func(spec *corev1.ServiceSpec) {
			spec.Type, spec.ExternalName = corev1.ServiceTypeClusterIP, ""
			spec.ClusterIP, spec.ClusterIPs = clusterIPs[0], clusterIPs
			spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
		}, want: reach{cluster: lab.Answered, node: lab.Refused, balancer: lab.Passed, external: lab.Passed}},
	}
}

// setNodePorts gives all ports the same number, since their protocols differ.
func setNodePorts(spec *corev1.ServiceSpec, number int32) {
	for i := range spec.Ports {
		spec.Ports[i].NodePort = number
	}
}

// TestServiceGoesThroughAllTypes checks every kind of address that a Service may
// have, after each change of the Service.
func TestServiceGoesThroughAllTypes(t *testing.T) {
	s := start(t)
	pods := []string{"pod1", "remote1"}
	web := s.create("web", pods...)
	for _, step := range s.stepsThroughAllTypes(web.Spec.ClusterIPs) {
		s.update("web", step.change)
		if step.ingress != "" {
			s.setIngress("web", step.ingress)
		}
		s.expect(step.name,
			expectation{clusterFlows(web), step.want.cluster, pods},
			expectation{flowsTo("client", nodePort, "192.0.2.10", "2001:db8::10"), step.want.node, pods},
			expectation{flowsTo("client", servicePort, balancerIP), step.want.balancer, pods},
			expectation{flowsTo("client", servicePort, externalIP), step.want.external, pods})
	}
}

// update changes a Service as it is now.
func (s *site) update(name string, change func(*corev1.ServiceSpec)) {
	s.Helper()
	service, err := s.services().Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	change(&service.Spec)
	if _, err := s.services().Update(s.Context(), service, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// setIngress does what a load balancer's controller does.
func (s *site) setIngress(name, ip string) {
	s.Helper()
	service, err := s.services().Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip, IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)}}
	if _, err := s.services().UpdateStatus(s.Context(), service, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}
