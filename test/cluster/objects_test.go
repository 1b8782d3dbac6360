package cluster

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"sluice/test/lab"
)

const namespace = metav1.NamespaceDefault

// servicePort is the port of every Service, and targetPort that of its pods.
const (
	servicePort = 80
	targetPort  = 8080
)

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// newService returns a dual-stack Service for all protocols, of type ClusterIP.
// Only the test creates endpoints for it.
func newService(name string) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.ServiceSpec{
			Type:           corev1.ServiceTypeClusterIP,
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
		},
	}
	for _, p := range protocols {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: portName(p), Protocol: p, Port: servicePort, TargetPort: intstr.FromInt32(targetPort)})
	}
	return service
}

func portName(p corev1.Protocol) string { return "on-" + string(protocolOf(p)) }

func protocolOf(p corev1.Protocol) lab.Protocol {
	return map[corev1.Protocol]lab.Protocol{
		corev1.ProtocolTCP: lab.TCP, corev1.ProtocolUDP: lab.UDP, corev1.ProtocolSCTP: lab.SCTP}[p]
}

// newSlices returns the EndpointSlices of a Service, IPv4 and IPv6, with these
// pods.
func (s *site) newSlices(service string, pods ...string) []*discoveryv1.EndpointSlice {
	s.Helper()
	var slices []*discoveryv1.EndpointSlice
	for i, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name:      fmt.Sprintf("%s-v%d", service, 4+2*i),
				Namespace: namespace,
				Labels:    map[string]string{discoveryv1.LabelServiceName: service},
			},
			AddressType: family,
		}
		for _, p := range protocols {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: ptr.To(portName(p)), Protocol: ptr.To(p), Port: ptr.To[int32](targetPort)})
		}
		for _, pod := range pods {
			host := s.host(pod)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{host.Addrs[i].String()},
				NodeName:   ptr.To(host.Node),
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
			})
		}
		slices = append(slices, slice)
	}
	return slices
}

func (s *site) services() clientcorev1.ServiceInterface { return s.client.CoreV1().Services(namespace) }

// create makes a Service with these pods as endpoints.
func (s *site) create(name string, pods ...string) *corev1.Service {
	s.Helper()
	service, err := s.services().Create(s.Context(), newService(name), metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, slice := range s.newSlices(name, pods...) {
		if _, err := s.client.DiscoveryV1().EndpointSlices(namespace).Create(s.Context(), slice, metav1.CreateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	return service
}

// setPods replaces the endpoints of a Service.
func (s *site) setPods(service string, pods ...string) {
	s.Helper()
	for _, slice := range s.newSlices(service, pods...) {
		if _, err := s.client.DiscoveryV1().EndpointSlices(namespace).Update(s.Context(), slice, metav1.UpdateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
}

// delete removes a Service with its endpoints.
func (s *site) delete(service string) {
	s.Helper()
	if err := s.services().Delete(s.Context(), service, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	for _, slice := range s.newSlices(service) {
		if err := s.client.DiscoveryV1().EndpointSlices(namespace).Delete(s.Context(), slice.Name, metav1.DeleteOptions{}); err != nil {
			s.Fatal(err)
		}
	}
}

// flowsTo returns attempts of a host to reach an address by all protocols.
func flowsTo(from string, port int32, addresses ...string) []lab.Flow {
	var flows []lab.Flow
	for _, a := range addresses {
		for _, p := range protocols {
			to := netip.AddrPortFrom(netip.MustParseAddr(a), uint16(port))
			flows = append(flows, lab.Flow{From: from, Protocol: protocolOf(p), To: to})
		}
	}
	return flows
}

// clusterFlows returns attempts of a pod to reach the ClusterIPs of a Service.
func clusterFlows(service *corev1.Service) []lab.Flow {
	return flowsTo("pod2", servicePort, service.Spec.ClusterIPs...)
}

// expectation is the outcome that some flows must have.
type expectation struct {
	flows []lab.Flow
	kind  lab.Kind
	by    []string // who may answer, if answers are expected
}

func answered(flows []lab.Flow, by ...string) expectation {
	return expectation{flows, lab.Answered, by}
}

// gone expects what becomes of packets to a ClusterIP that no Service has: they are dropped
// if the API server names the ranges of ClusterIPs, and left alone if it does not, as before
// Kubernetes 1.33.
func (s *site) gone(flows []lab.Flow) expectation {
	s.Helper()
	_, err := s.client.NetworkingV1().ServiceCIDRs().List(s.Context(), metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return expectation{flows, lab.Passed, nil}
	case err != nil:
		s.Fatal(err)
	}
	return expectation{flows, lab.Dropped, nil}
}
func refused(flows []lab.Flow) expectation { return expectation{flows, lab.Refused, nil} }

// check returns how the outcome of a flow differs from the expected one.
func (e expectation) check(f lab.Flow, o lab.Outcome) error {
	if o.Kind != e.kind || e.kind == lab.Answered && !slices.Contains(e.by, o.By) {
		return fmt.Errorf("%v: %v, want %s %v", f, o, e.kind, e.by)
	}
	return nil
}
