package source

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice/internal/model"
)

// Refused reports whether an object with these problems must not be used. Otherwise
// it is used without the fields: what a load balancer wrote is not its owner's
// mistake, and a value that is well-formed but of no use, such as an endpoint's
// loopback address, harms only itself. A Service needs the addresses that it says.
func Refused(problems []model.Problem) bool {
	return slices.ContainsFunc(problems, func(p model.Problem) bool {
		switch field, _, _ := strings.Cut(p.Field, "["); field {
		case "status.loadBalancer.ingress":
			return false
		case "spec.clusterIP", "spec.clusterIPs", "spec.externalIPs":
			return true
		}
		return p.Malformed
	})
}

// validator reports what is wrong with an object that its conversion does not look
// at, because an API server refuses such an object.
type validator struct{ *Report }

func (v validator) meta(object metav1.Object, rule func(string) []string) {
	if object.GetName() == "" {
		v.Malformed("metadata.name", "set metadata.name", "the name is missing")
	}
	v.name("metadata.name", object.GetName(), rule)
	v.name("metadata.namespace", object.GetNamespace(), validation.IsDNS1123Label)
}

// name checks a name by a rule, if there is one.
func (v validator) name(field, name string, rule func(string) []string) {
	if errs := rule(name); name != "" && len(errs) > 0 {
		remedy := "use lower case letters, digits and -, beginning and ending with a letter or digit"
		if len(errs) == 1 && strings.Contains(errs[0], "no more than") {
			remedy = "use a shorter name"
		}
		v.Malformed(field, remedy,
			"%q is not a valid name: %v", name, errors.New(strings.Join(errs, "; ")))
	}
}

// service checks a Service. Its name may begin with a digit, as newer API
// servers allow.
func (v validator) service(svc *v1.Service, events []model.Event) {
	spec := &svc.Spec
	switch spec.Type {
	case v1.ServiceTypeExternalName:
		return
	case "", v1.ServiceTypeClusterIP, v1.ServiceTypeNodePort, v1.ServiceTypeLoadBalancer:
	default:
		v.Malformed("spec.type", "use ClusterIP, NodePort, LoadBalancer or ExternalName", "%q is not a type of Services", spec.Type)
	}
	if !isHeadless(svc) && len(spec.Ports) == 0 {
		v.Malformed("spec.ports", "set spec.ports", "a Service must have a port")
	}
	v.clusterIPs(spec)
	if len(events) > 0 && !Refused(problemsOf(events)) {
		if set, ok := events[0].(model.SetService); ok {
			v.families(spec, set.Service)
		}
	}
	seen := map[string]int{}
	for i := range spec.Ports {
		v.servicePort(spec, i, seen)
	}
	if config := spec.SessionAffinityConfig; spec.SessionAffinity != v1.ServiceAffinityClientIP && config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil {
		v.Malformed("spec.sessionAffinityConfig", "set spec.sessionAffinity to ClientIP", "a Service without session affinity has a timeout for it")
	}
}

// clusterIPs checks that the addresses are there and that clusterIP and clusterIPs
// agree.
func (v validator) clusterIPs(spec *v1.ServiceSpec) {
	ips := spec.ClusterIPs
	switch {
	case spec.ClusterIP == "" && len(ips) == 0:
		v.Malformed("spec.clusterIP", "set spec.clusterIP", "the Service has no clusterIP, and there is no controller here to allocate one")
	case len(ips) == 0:
	case len(ips) > 2:
		v.Malformed("spec.clusterIPs", "keep one address for each family", "a Service can have at most two ClusterIPs")
	case len(ips) == 2 && (ips[0] == v1.ClusterIPNone || ips[1] == v1.ClusterIPNone):
		v.Malformed("spec.clusterIPs", "remove None or the addresses", "a Service has either the ClusterIP None or addresses")
	case spec.ClusterIP != "" && spec.ClusterIP != ips[0]:
		v.Malformed("spec.clusterIP", "make it the same as spec.clusterIPs[0]", "%q is not the first of spec.clusterIPs", spec.ClusterIP)
	}
}

// families checks that the addresses are of the families that a Service says.
func (v validator) families(spec *v1.ServiceSpec, value *model.Service) {
	var families []string
	for _, addr := range value.ClusterIPs {
		families = append(families, model.FamilyOf(addr).String())
	}
	if len(spec.ClusterIPs) == 2 && (len(families) < 2 || families[0] == families[1]) {
		v.Malformed("spec.clusterIPs[1]", "keep one address for each family", "both ClusterIPs are of family %s", families[0])
	}
	for i, f := range spec.IPFamilies {
		field := fmt.Sprintf("spec.ipFamilies[%d]", i)
		switch {
		case i >= len(families):
			v.Malformed(field, "set spec.clusterIPs to an address of each family", "there is no ClusterIP of family %s", f)
		case string(f) != families[i]:
			v.Malformed(field, "list the families of spec.clusterIPs in their order", "ClusterIP %s is not of family %s", value.ClusterIPs[i], f)
		}
	}
	if spec.IPFamilyPolicy == nil {
		return
	}
	switch policy := *spec.IPFamilyPolicy; {
	case policy == v1.IPFamilyPolicySingleStack && len(families) == 2:
		v.Malformed("spec.ipFamilyPolicy", "remove one of spec.clusterIPs or use PreferDualStack", "a SingleStack Service has two ClusterIPs")
	case policy == v1.IPFamilyPolicyRequireDualStack && len(families) == 1:
		v.Malformed("spec.ipFamilyPolicy", "set spec.clusterIPs to an address of each family", "a RequireDualStack Service has one ClusterIP")
	case policy != v1.IPFamilyPolicySingleStack && policy != v1.IPFamilyPolicyPreferDualStack && policy != v1.IPFamilyPolicyRequireDualStack:
		v.Malformed("spec.ipFamilyPolicy", "use SingleStack, PreferDualStack or RequireDualStack", "%q is not a family policy", policy)
	}
}

// servicePort checks a port, and that it differs from those before it.
func (v validator) servicePort(spec *v1.ServiceSpec, i int, seen map[string]int) {
	p := &spec.Ports[i]
	field := func(name string) string { return fmt.Sprintf("spec.ports[%d].%s", i, name) }
	v.name(field("name"), p.Name, validation.IsDNS1123Label)
	if p.Name == "" && len(spec.Ports) > 1 {
		v.Malformed(field("name"), "set a name for every port", "a port among several has no name")
	}
	if target := p.TargetPort; target.Type == intstr.String {
		v.name(field("targetPort"), target.StrVal, validation.IsValidPortName)
	} else if target.IntVal < 0 || target.IntVal > 65535 {
		v.Malformed(field("targetPort"), "use a port from 1 to 65535", "%d is not a port", target.IntVal)
	}
	if p.NodePort != 0 && (spec.Type == "" || spec.Type == v1.ServiceTypeClusterIP) {
		v.Malformed(field("nodePort"), "remove nodePort or set spec.type to NodePort", "a ClusterIP Service cannot have a nodePort")
	}
	first := func(name, what, key string) {
		id := name + " " + key
		if j, ok := seen[id]; ok {
			v.Malformed(field(name), "change one of them", "spec.ports[%d] has the same %s", j, what)
			return
		}
		seen[id] = i
	}
	if p.Name != "" {
		first("name", "name", p.Name)
	}
	protocol := cmp.Or(p.Protocol, v1.ProtocolTCP)
	first("port", "port and protocol", fmt.Sprint(p.Port, protocol))
	if p.NodePort != 0 {
		first("nodePort", "nodePort and protocol", fmt.Sprint(p.NodePort, protocol))
	}
}

// slice checks an EndpointSlice. It may have any number of endpoints: the limit
// of the API server is there to keep updates small.
func (v validator) slice(slice *discoveryv1.EndpointSlice, _ []model.Event) {
	switch slice.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN:
	default:
		v.Malformed("addressType", "set addressType to IPv4, IPv6 or FQDN", "%q is not an address type", slice.AddressType)
	}
	names := map[string]int{}
	for i, p := range slice.Ports {
		field, name := fmt.Sprintf("ports[%d].name", i), ""
		if p.Name != nil {
			name = *p.Name
		}
		v.name(field, name, validation.IsDNS1123Label)
		if first, ok := names[name]; ok {
			v.Malformed(field, "give every port a name of its own", "ports[%d] has the name %q too", first, name)
		}
		names[name] = i
	}
	for i := range slice.Endpoints {
		if name := slice.Endpoints[i].NodeName; name != nil && len(validation.IsDNS1123Subdomain(*name)) > 0 {
			v.name(fmt.Sprintf("endpoints[%d].nodeName", i), *name, validation.IsDNS1123Subdomain)
		}
	}
}

// endpoints checks the names of the ports of Endpoints.
//
//lint:ignore SA1019 Endpoints is deprecated, and manifests still hold it.
func (v validator) endpoints(in *v1.Endpoints, _ []model.Event) {
	for i := range in.Subsets {
		v.subsetPorts(i, in.Subsets[i].Ports)
	}
}

func (v validator) subsetPorts(subset int, ports []v1.EndpointPort) {
	for i, p := range ports {
		field := fmt.Sprintf("subsets[%d].ports[%d].name", subset, i)
		v.name(field, p.Name, validation.IsDNS1123Label)
		if p.Name == "" && len(ports) > 1 {
			v.Malformed(field, "set the names of the service's ports", "a port among several has no name")
		}
	}
}

// node checks nothing.
func (v validator) node(*v1.Node, []model.Event) {}

// serviceCIDR checks that a ServiceCIDR has a range for one or both families.
func (v validator) serviceCIDR(cidr *networkingv1.ServiceCIDR, _ []model.Event) {
	value := ServiceCIDR(cidr)
	if len(value.Prefixes)+len(value.Problems) == 0 {
		v.Malformed("spec.cidrs", "set one CIDR, or one for each family", "there is no CIDR")
	}
	seen := map[model.Family]bool{}
	for i, prefix := range value.Prefixes {
		family := model.FamilyOf(prefix.Addr())
		if seen[family] {
			v.Malformed(fmt.Sprintf("spec.cidrs[%d]", i), "put it into a ServiceCIDR of its own", "there are two CIDRs of family %s", family)
		}
		seen[family] = true
	}
}
