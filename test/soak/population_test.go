//go:build linux

package soak

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/test/fakeapi"
	"sluice/test/lab"
)

// pods are those that can be endpoints, with their nodes.
var pods = map[string]string{"pod1": "node1", "pod2": "node1", "pod3": "node1", "remote1": "node2", "remote2": "node2"}

var podNames = []string{"pod1", "pod2", "pod3", "remote1", "remote2"}

// The permanent Services. Their number is in their addresses.
const (
	plain = iota + 1
	nodePorts
	admitting // with source ranges, which admit client alone
	localOutside
	localInside
	sticky
	external
	changing // its endpoints change all the time
	empty
	beacon // has one endpoint, which shows how far the proxy follows
)

// firstPassing is the number of the first Service that is added and removed.
const (
	firstPassing = 100
	maxPassing   = 24
)

var families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// pair is an IPv4 and an IPv6 address.
type pair [2]netip.Addr

func clusterIP(number int) pair { return pairOf("10.96.0.%d", "fd00:10:96::%d", number) }

func externalIP(number int) pair { return pairOf("198.18.0.%d", "2001:db8:18::%d", number) }

func pairOf(four, six string, number int) pair {
	return pair{netip.MustParseAddr(fmt.Sprintf(four, number)), netip.MustParseAddr(fmt.Sprintf(six, number))}
}

func (p pair) strings() []string { return []string{p[0].String(), p[1].String()} }

// The node ports of a Service, for TCP and UDP.
func nodePort(number int, protocol lab.Protocol) uint16 {
	if protocol == lab.UDP {
		return uint16(31000 + number)
	}
	return uint16(30000 + number)
}

// service is a Service with its endpoints.
type service struct {
	*corev1.Service
	endpoints []string // names of pods
}

// newService returns a ClusterIP Service, to be changed into another.
func newService(number int, endpoints []string, change func(*corev1.Service)) service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s", number)},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  clusterIP(number)[0].String(),
			ClusterIPs: clusterIP(number).strings(),
			IPFamilies: families,
			Ports: []corev1.ServicePort{
				{Name: "t", Protocol: corev1.ProtocolTCP, Port: 80},
				{Name: "u", Protocol: corev1.ProtocolUDP, Port: 80},
			},
		},
	}
	change(s)
	return service{s, endpoints}
}

// withNodePorts turns it into a Service of type NodePort.
func withNodePorts(number int) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = int32(nodePort(number, lab.TCP))
		s.Spec.Ports[1].NodePort = int32(nodePort(number, lab.UDP))
	}
}

// balanced turns it into a Service of type LoadBalancer.
func balanced(number int, more func(*corev1.Service)) func(*corev1.Service) {
	return func(s *corev1.Service) {
		withNodePorts(number)(s)
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		for _, ip := range externalIP(number).strings() {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		more(s)
	}
}

func local(number int) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.HealthCheckNodePort = int32(32000 + number)
	}
}

func admits(ranges ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = ranges }
}

func unchanged(*corev1.Service) {}

func inside(s *corev1.Service) {
	policy := corev1.ServiceInternalTrafficPolicyLocal
	s.Spec.InternalTrafficPolicy = &policy
}

func withAffinity(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }

func withExternalIPs(number int) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ExternalIPs = externalIP(number).strings() }
}

// population is all objects.
type population struct {
	server *fakeapi.Server

	mutex    sync.Mutex
	services map[int]service
}

func newPopulation(server *fakeapi.Server) *population {
	near, far := []string{"pod1", "remote1"}, []string{"pod1", "pod2", "remote1"}
	p := &population{server: server, services: map[int]service{
		plain:        newService(plain, far, unchanged),
		nodePorts:    newService(nodePorts, near, withNodePorts(nodePorts)),
		admitting:    newService(admitting, near, balanced(admitting, admits("198.51.100.0/24", "2001:db8:1::/64"))),
		localOutside: newService(localOutside, []string{"pod2", "remote1"}, balanced(localOutside, local(localOutside))),
		localInside:  newService(localInside, near, inside),
		sticky:       newService(sticky, far, withAffinity),
		external:     newService(external, near, withExternalIPs(external)),
		changing:     newService(changing, near, withNodePorts(changing)),
		empty:        newService(empty, nil, unchanged),
		beacon:       newService(beacon, []string{"pod1"}, unchanged),
	}}
	return p
}

// set changes the Services and updates the API server.
func (p *population) set(change func(map[int]service)) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	change(p.services)
	objects := []fakeapi.Object{&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1"},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{lab.Node1PodCIDRs[0].String(), lab.Node1PodCIDRs[1].String()}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::10"}}},
	}}
	for _, s := range p.services {
		objects = append(objects, s.Service)
		for f, family := range families {
			objects = append(objects, s.slice(f, discoveryv1.AddressType(family)))
		}
	}
	return p.server.Set(objects)
}

// slice returns the EndpointSlice of a family.
func (s service) slice(family int, addresses discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	port := int32(lab.EchoPorts[0])
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprint(s.Name, "-", family),
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: addresses,
	}
	for i := range s.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &s.Spec.Ports[i].Name, Protocol: &s.Spec.Ports[i].Protocol, Port: &port})
	}
	for _, pod := range s.endpoints {
		node := pods[pod]
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{podIP(pod)[family].String()}, NodeName: &node})
	}
	return slice
}

func podIP(pod string) pair {
	for i, name := range podNames[:3] {
		if name == pod {
			return pairOf("10.244.1.%d", "fd00:10:244:1::%d", i+1)
		}
	}
	return pairOf("10.244.2.%d", "fd00:10:244:2::%d", slices.Index(podNames, pod)-2)
}

// churn changes something at random.
func (p *population) churn(rng *rand.Rand) error {
	return p.set(func(all map[int]service) {
		if rng.IntN(2) == 0 {
			s := all[changing]
			s.endpoints = somePods(rng, 1)
			all[changing] = s
			return
		}
		number := firstPassing + rng.IntN(maxPassing)
		if _, there := all[number]; there && rng.IntN(3) == 0 {
			delete(all, number)
			return
		}
		all[number] = newService(number, somePods(rng, 0), randomKind(rng, number))
	})
}

func somePods(rng *rand.Rand, least int) []string {
	all := slices.Clone(podNames)
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:least+rng.IntN(len(all)+1-least)]
}

// randomKind turns it into a Service of a random kind.
func randomKind(rng *rand.Rand, number int) func(*corev1.Service) {
	kinds := []func(*corev1.Service){
		unchanged, inside, withNodePorts(number), withExternalIPs(number),
		balanced(number, unchanged), balanced(number, local(number)), balanced(number, admits("203.0.113.0/24")),
	}
	kind := kinds[rng.IntN(len(kinds))]
	affine := rng.IntN(4) == 0
	return func(s *corev1.Service) {
		kind(s)
		if affine {
			withAffinity(s)
		}
	}
}
