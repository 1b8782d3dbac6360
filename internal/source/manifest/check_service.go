package manifest

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice/internal/model"
	"sluice/internal/source"
)

// service checks a Service. Its name may begin with a digit, as newer API
// servers allow. The source ranges are not checked here: a malformed one is
// left out, and must not open the Service to everybody.
func (c *checker) service(svc *v1.Service) bool {
	c.meta(&svc.ObjectMeta, validation.IsDNS1123Label)
	spec := &svc.Spec
	c.oneOf("spec.type", string(spec.Type), "ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
	if spec.Type == v1.ServiceTypeExternalName {
		return !c.failed
	}
	if source.IsHeadless(svc) {
		c.headless(spec)
	} else {
		c.clusterIPs(spec)
		if len(spec.Ports) == 0 {
			c.add("spec.ports", "set spec.ports", "a Service must have a port")
		}
	}
	c.servicePorts(spec)
	for i, s := range spec.ExternalIPs {
		field := fmt.Sprintf("spec.externalIPs[%d]", i)
		if addr, ok := c.addr(field, s); ok {
			c.usable(field, addr, source.CheckEndpoint)
		}
	}
	c.policies(spec)
	c.affinity(spec)
	return !c.failed
}

func (c *checker) usable(field string, addr netip.Addr, check func(netip.Addr) error) {
	if err := check(addr); err != nil {
		c.add(field, "use an address that others can reach", "%s cannot be used: %v", addr, err)
	}
}

func (c *checker) headless(spec *v1.ServiceSpec) {
	if spec.ClusterIP != "" && spec.ClusterIP != v1.ClusterIPNone || len(spec.ClusterIPs) > 1 ||
		len(spec.ClusterIPs) == 1 && spec.ClusterIPs[0] != v1.ClusterIPNone {
		c.add("spec.clusterIPs", "remove None or the addresses", "a Service has either the ClusterIP None or addresses")
	}
}

// clusterIPs checks that the addresses are there and fit the families.
func (c *checker) clusterIPs(spec *v1.ServiceSpec) {
	field := func(i int) string { return fmt.Sprintf("spec.clusterIPs[%d]", i) }
	ips := spec.ClusterIPs
	if len(ips) == 0 && spec.ClusterIP != "" {
		ips = []string{spec.ClusterIP}
		field = func(int) string { return "spec.clusterIP" }
	}
	if len(ips) == 0 {
		c.add("spec.clusterIP", "set spec.clusterIP", "the Service has no clusterIP, and nobody here can allocate one")
		return
	}
	if len(ips) > 2 {
		c.add("spec.clusterIPs", "keep one address for each family", "a Service can have at most two ClusterIPs")
		return
	}
	if spec.ClusterIP != "" && spec.ClusterIP != ips[0] {
		c.add("spec.clusterIP", "make it the same as spec.clusterIPs[0]", "%q is not the first of spec.clusterIPs", spec.ClusterIP)
	}
	var addrs []netip.Addr
	for i, s := range ips {
		addr, ok := c.addr(field(i), s)
		if !ok {
			return
		}
		c.usable(field(i), addr, source.CheckForwardable)
		addrs = append(addrs, addr)
	}
	if len(addrs) == 2 && model.FamilyOf(addrs[0]) == model.FamilyOf(addrs[1]) {
		c.add("spec.clusterIPs[1]", "keep one address for each family", "both ClusterIPs are of family %s", model.FamilyOf(addrs[0]))
	}
	c.families(spec, addrs)
}

func (c *checker) families(spec *v1.ServiceSpec, addrs []netip.Addr) {
	for i, f := range spec.IPFamilies {
		field := fmt.Sprintf("spec.ipFamilies[%d]", i)
		switch {
		case f != v1.IPv4Protocol && f != v1.IPv6Protocol:
			c.add(field, "use IPv4 or IPv6", "%q is not a family", f)
		case i >= len(addrs):
			c.add(field, "set spec.clusterIPs to an address of each family", "there is no ClusterIP of family %s", f)
		case string(f) != model.FamilyOf(addrs[i]).String():
			c.add(field, "list the families of spec.clusterIPs in their order", "ClusterIP %s is not of family %s", addrs[i], f)
		}
	}
	if spec.IPFamilyPolicy == nil {
		return
	}
	policy := *spec.IPFamilyPolicy
	c.oneOf("spec.ipFamilyPolicy", string(policy), "SingleStack", "PreferDualStack", "RequireDualStack")
	switch {
	case policy == v1.IPFamilyPolicySingleStack && len(addrs) == 2:
		c.add("spec.ipFamilyPolicy", "remove one of spec.clusterIPs or use PreferDualStack", "a SingleStack Service has two ClusterIPs")
	case policy == v1.IPFamilyPolicyRequireDualStack && len(addrs) == 1:
		c.add("spec.ipFamilyPolicy", "set spec.clusterIPs to an address of each family", "a RequireDualStack Service has one ClusterIP")
	}
}

// servicePorts checks each port by itself and all for being told apart.
func (c *checker) servicePorts(spec *v1.ServiceSpec) {
	type number struct {
		port     int32
		protocol v1.Protocol
	}
	names, ports, nodePorts := map[string]int{}, map[number]int{}, map[number]int{}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		c.servicePort(i, p, spec)
		protocol := p.Protocol
		if protocol == "" {
			protocol = v1.ProtocolTCP
		}
		field := fmt.Sprintf("spec.ports[%d]", i)
		if p.Name != "" {
			firstOf(c, names, p.Name, i, field+".name", "name")
		}
		firstOf(c, ports, number{p.Port, protocol}, i, field+".port", "port and protocol")
		if p.NodePort != 0 {
			firstOf(c, nodePorts, number{p.NodePort, protocol}, i, field+".nodePort", "nodePort and protocol")
		}
	}
}

// firstOf records a port's key and refuses it if an earlier port has it.
func firstOf[K comparable](c *checker, seen map[K]int, key K, i int, field, what string) {
	if first, ok := seen[key]; ok {
		c.add(field, "change one of them", "spec.ports[%d] has the same %s", first, what)
		return
	}
	seen[key] = i
}

func (c *checker) servicePort(i int, p *v1.ServicePort, spec *v1.ServiceSpec) {
	field := func(name string) string { return fmt.Sprintf("spec.ports[%d].%s", i, name) }
	if p.Name != "" {
		c.name(field("name"), p.Name, validation.IsDNS1123Label)
	} else if len(spec.Ports) > 1 {
		c.add(field("name"), "set a name for every port", "a port among several has no name")
	}
	c.port(field("port"), p.Port)
	c.protocol(field("protocol"), p.Protocol)
	switch {
	case p.TargetPort.Type == intstr.Int && p.TargetPort.IntVal != 0:
		c.port(field("targetPort"), p.TargetPort.IntVal)
	case p.TargetPort.Type == intstr.String:
		c.name(field("targetPort"), p.TargetPort.StrVal, validation.IsValidPortName)
	}
	if p.NodePort == 0 {
		return
	}
	c.port(field("nodePort"), p.NodePort)
	if spec.Type == "" || spec.Type == v1.ServiceTypeClusterIP {
		c.add(field("nodePort"), "remove nodePort or set spec.type to NodePort", "a ClusterIP Service cannot have a nodePort")
	}
}

func (c *checker) policies(spec *v1.ServiceSpec) {
	if spec.InternalTrafficPolicy != nil {
		c.oneOf("spec.internalTrafficPolicy", string(*spec.InternalTrafficPolicy), "Cluster", "Local")
	}
	c.oneOf("spec.externalTrafficPolicy", string(spec.ExternalTrafficPolicy), "Cluster", "Local")
	if spec.HealthCheckNodePort != 0 {
		c.port("spec.healthCheckNodePort", spec.HealthCheckNodePort)
	}
}

func (c *checker) affinity(spec *v1.ServiceSpec) {
	c.oneOf("spec.sessionAffinity", string(spec.SessionAffinity), "None", "ClientIP")
	config := spec.SessionAffinityConfig
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		return
	}
	if spec.SessionAffinity != v1.ServiceAffinityClientIP {
		c.add("spec.sessionAffinityConfig", "set spec.sessionAffinity to ClientIP", "a Service without session affinity has a time-out for it")
	}
	if s := *config.ClientIP.TimeoutSeconds; s < 1 || s > source.MaxAffinity {
		c.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "use a time-out from 1 to 86400 seconds", "%d seconds is out of range", s)
	}
}
