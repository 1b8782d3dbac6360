package cluster

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/test/fakeapi"
)

// The oddities of objects and configurations. Each can be left out, to find the one
// that matters.
const (
	absentConditions = "absent-conditions" // the default in place of true or false
	leadingZeros     = "leading-zeros"     // in addresses and ranges
	paddedRanges     = "padded-ranges"     // blanks around source ranges
	malformedRanges  = "malformed-ranges"  // among source ranges
	rangeAnnotation  = "range-annotation"  // the annotation for cloud controllers
	proxyIngress     = "proxy-ingress"     // an ingress IP of ipMode Proxy
	masqueradeAll    = "masquerade-all"
	emptyMode        = "empty-mode"   // in place of iptables
	routedLocal      = "routed-local" // an address that is the node's by route only
	oneFamily        = "one-family"   // node port addresses of one family alone
	sessionAffinity  = "affinity"
	sourceRanges     = "source-ranges"
	oneFamilyRanges  = "one-family-ranges" // source ranges of one family alone
)

// speller writes the objects of a world. The same object is written the same way
// each time.
type speller struct {
	seed    uint64
	leftOut []string
	plain   bool // all oddities are left out
}

// oneIn is true for one in n, always the same, unless the oddity is left out.
func (s speller) oneIn(n uint64, oddity string, of ...any) bool {
	if s.plain || slices.Contains(s.leftOut, oddity) {
		return false
	}
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, oddity, of)
	sum := h.Sum64()
	return (sum^sum>>29)*0x9e3779b97f4a7c15>>33%n == 0
}

// objects are all objects of a world.
func (s speller) objects(w oracle.World) []fakeapi.Object {
	out := []fakeapi.Object{s.node(w.Node)}
	for _, service := range w.Services {
		out = append(out, s.service(service))
	}
	for _, slice := range w.Slices {
		out = append(out, s.slice(slice))
	}
	for _, c := range w.ServiceCIDRs {
		object := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: c.Name}}
		for _, p := range c.Prefixes {
			object.Spec.CIDRs = append(object.Spec.CIDRs, p.String())
		}
		out = append(out, object)
	}
	return out
}

func (s speller) node(n *model.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{}}}
	if n.Zone != "" {
		out.Labels[corev1.LabelTopologyZone] = n.Zone
	}
	for _, p := range n.PodCIDRs {
		out.Spec.PodCIDRs = append(out.Spec.PodCIDRs, p.String())
	}
	out.Spec.PodCIDR = out.Spec.PodCIDRs[0]
	for _, a := range n.IPs {
		out.Status.Addresses = append(out.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	return out
}

func (s speller) service(in *model.Service) *corev1.Service {
	out := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: in.Name.Namespace, Name: in.Name.Name}}
	spec := &out.Spec
	spec.Type = typeOf(in)
	spec.ClusterIPs = s.addrs(in.Name, in.ClusterIPs)
	spec.ClusterIP = spec.ClusterIPs[0]
	spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	if len(in.ClusterIPs) > 1 {
		spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	for _, a := range in.ClusterIPs {
		spec.IPFamilies = append(spec.IPFamilies, corev1.IPFamily(model.FamilyOf(a).String()))
	}
	spec.ExternalIPs = s.addrs(in.Name, in.ExternalIPs)
	for _, p := range in.Ports {
		spec.Ports = append(spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: corev1.Protocol(p.Protocol.String()), Port: int32(p.Port), NodePort: int32(p.NodePort)})
	}
	spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicy(in.InternalPolicy.String()))
	if spec.Type != corev1.ServiceTypeClusterIP || len(spec.ExternalIPs) > 0 {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(in.ExternalPolicy.String())
	}
	spec.SessionAffinity = corev1.ServiceAffinityNone
	if in.Affinity != 0 {
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(in.Affinity))}}
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		s.loadBalancer(in, out)
	}
	return out
}

func typeOf(in *model.Service) corev1.ServiceType {
	if len(in.LoadBalancerIPs) > 0 || in.Filtered {
		return corev1.ServiceTypeLoadBalancer
	}
	for _, p := range in.Ports {
		if p.NodePort != 0 {
			return corev1.ServiceTypeNodePort
		}
	}
	return corev1.ServiceTypeClusterIP
}

// proxiedIP is the IP of a load balancer that is no frontend.
const proxiedIP = "198.18.0.90"

// closedRange admits no client, as a source range.
const closedRange = "192.0.2.250/32"

func (s speller) loadBalancer(in *model.Service, out *corev1.Service) {
	ingress := &out.Status.LoadBalancer.Ingress
	for i, text := range s.addrs(in.Name, in.LoadBalancerIPs) {
		entry := corev1.LoadBalancerIngress{IP: text}
		if i%2 == 0 {
			entry.IPMode = ptr.To(corev1.LoadBalancerIPModeVIP)
		}
		*ingress = append(*ingress, entry)
	}
	if s.oneIn(4, proxyIngress, in.Name) {
		*ingress = append(*ingress, corev1.LoadBalancerIngress{IP: proxiedIP, IPMode: ptr.To(corev1.LoadBalancerIPModeProxy)})
	}
	for _, r := range in.SourceRanges {
		out.Spec.LoadBalancerSourceRanges = append(out.Spec.LoadBalancerSourceRanges, s.prefix(in.Name, r))
	}
	if in.Filtered && (len(in.SourceRanges) == 0 || s.oneIn(8, malformedRanges, in.Name)) {
		out.Spec.LoadBalancerSourceRanges = append(out.Spec.LoadBalancerSourceRanges, "anywhere")
	}
	if s.oneIn(4, rangeAnnotation, in.Name) {
		out.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: closedRange}
	}
}

func (s speller) slice(in *model.Slice) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: in.Name.Namespace, Name: strings.ToLower(in.Name.Name),
			Labels: map[string]string{discoveryv1.LabelServiceName: in.Service}},
		AddressType: discoveryv1.AddressType(in.Family.String()),
	}
	for _, p := range in.Ports {
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{
			Name: ptr.To(p.Name), Protocol: ptr.To(corev1.Protocol(p.Protocol.String())), Port: ptr.To(int32(p.Port))})
	}
	for _, e := range in.Endpoints {
		endpoint := discoveryv1.Endpoint{
			Addresses:  []string{s.addr(in.Name, e.Addr)},
			Conditions: s.conditions(in, e),
		}
		if e.Node != "" {
			endpoint.NodeName = ptr.To(e.Node)
		}
		if e.Hints != nil {
			endpoint.Hints = &discoveryv1.EndpointHints{}
			for _, zone := range e.Hints.Zones {
				endpoint.Hints.ForZones = append(endpoint.Hints.ForZones, discoveryv1.ForZone{Name: zone})
			}
			for _, node := range e.Hints.Nodes {
				endpoint.Hints.ForNodes = append(endpoint.Hints.ForNodes, discoveryv1.ForNode{Name: node})
			}
		}
		out.Endpoints = append(out.Endpoints, endpoint)
	}
	return out
}

// conditions omits a condition now and then, where that means the same.
func (s speller) conditions(slice *model.Slice, e model.Endpoint) discoveryv1.EndpointConditions {
	condition := func(c model.Conditions, usual bool) *bool {
		holds := e.Conditions.Has(c)
		if holds == usual && s.oneIn(2, absentConditions, slice.Name, e.Addr, c) {
			return nil
		}
		return &holds
	}
	return discoveryv1.EndpointConditions{
		Ready:       condition(model.Ready, true),
		Serving:     condition(model.Serving, true),
		Terminating: condition(model.Terminating, false),
	}
}

func (s speller) addrs(of model.Name, list []netip.Addr) []string {
	var out []string
	for _, a := range list {
		out = append(out, s.addr(of, a))
	}
	return out
}

func (s speller) addr(of model.Name, a netip.Addr) string {
	if a.Is4() && s.oneIn(12, leadingZeros, of, a) {
		b := a.As4()
		return fmt.Sprintf("%03d.%03d.%03d.%03d", b[0], b[1], b[2], b[3])
	}
	return a.String()
}

func (s speller) prefix(of model.Name, p netip.Prefix) string {
	text := fmt.Sprintf("%s/%d", s.addr(of, p.Addr()), p.Bits())
	if s.oneIn(4, paddedRanges, of, p) {
		text = " " + text + " "
	}
	return text
}
