package source

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"

	"sluice/internal/model"
)

// The default and the maximum of the session affinity timeout, in seconds.
const (
	DefaultAffinity = 10800
	maxAffinity     = 86400
)

// preserveDestination is an annotation for nodes with Windows, which has no meaning on others.
const preserveDestination = "preserve-destination"

// Service converts a Service. It returns false for headless and ExternalName
// Services and for those that another proxy implements.
func (p Proxy) Service(svc *v1.Service) (*model.Service, bool) {
	if !needsProxy(svc) || !p.serves(svc) {
		return nil, false
	}
	name := nameOf(svc)
	r := NewReport(model.ServiceObject(name))
	out := &model.Service{
		Name:           name,
		UID:            string(svc.UID),
		Created:        svc.CreationTimestamp.UTC(),
		ClusterIPs:     r.clusterIPs(svc),
		ExternalIPs:    r.addrs("spec.externalIPs", svc.Spec.ExternalIPs, checkEndpoint),
		Ports:          r.servicePorts(svc),
		InternalPolicy: r.internalPolicy(svc),
		ExternalPolicy: r.externalPolicy(svc),
		Affinity:       r.affinity(svc),
	}
	out.Algorithm, out.AlgorithmChosen = r.algorithm(svc.Annotations)
	out.Eject = r.eject(svc.Annotations)
	out.Direct = r.direct(svc.Annotations)
	var health uint16
	if svc.Spec.HealthCheckNodePort != 0 {
		health, _ = r.port("spec.healthCheckNodePort", svc.Spec.HealthCheckNodePort)
	}
	if svc.Spec.Type == v1.ServiceTypeLoadBalancer {
		r.loadBalancer(svc, out, health)
	} else if len(svc.Spec.LoadBalancerSourceRanges) > 0 {
		r.unusable("spec.loadBalancerSourceRanges", "set spec.type to LoadBalancer, or restrict the clients by a NetworkPolicy",
			"everybody may connect: source ranges are for Services of type LoadBalancer")
	}
	out.PreserveDestination = svc.Annotations[preserveDestination] == "true"
	out.PassThrough = r.passThrough(svc.Annotations)
	r.portRanges(svc.Annotations, out.Ports)
	out.FilterAll = r.filterAll(svc.Annotations, out.Filtered)
	r.unknownAnnotations(svc.Annotations, "a Service", serviceAnnotations)
	out.Problems = r.List()
	return out, true
}

// needsProxy reports whether a Service is one that proxies serve.
func needsProxy(svc *v1.Service) bool {
	return svc.Spec.Type != v1.ServiceTypeExternalName && !isHeadless(svc)
}

// isHeadless reports whether a Service is meant to have no ClusterIP.
func isHeadless(svc *v1.Service) bool {
	return svc.Spec.ClusterIP == v1.ClusterIPNone ||
		len(svc.Spec.ClusterIPs) > 0 && svc.Spec.ClusterIPs[0] == v1.ClusterIPNone
}

func (r *Report) clusterIPs(svc *v1.Service) []netip.Addr {
	if len(svc.Spec.ClusterIPs) == 0 && svc.Spec.ClusterIP != "" {
		addr, ok := r.addr("spec.clusterIP", svc.Spec.ClusterIP, checkForwardable)
		if !ok {
			return nil
		}
		return []netip.Addr{addr}
	}
	return r.addrs("spec.clusterIPs", svc.Spec.ClusterIPs, checkForwardable)
}

func (r *Report) servicePorts(svc *v1.Service) []model.ServicePort {
	out := make([]model.ServicePort, 0, len(svc.Spec.Ports))
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		field := func(name string) string { return fmt.Sprintf("spec.ports[%d].%s", i, name) }
		port, ok := r.port(field("port"), p.Port)
		if !ok {
			continue
		}
		protocol, ok := r.protocol(field("protocol"), p.Protocol)
		if !ok {
			continue
		}
		out = append(out, model.ServicePort{
			Name:     intern(p.Name),
			Protocol: protocol,
			Port:     port,
			NodePort: r.nodePort(field("nodePort"), svc.Spec.Type, p.NodePort),
		})
	}
	return exact(out)
}

// nodePort returns 0 if the port has none. That is a problem for a Service of
// type NodePort only.
func (r *Report) nodePort(field string, typ v1.ServiceType, port int32) uint16 {
	switch {
	case typ != v1.ServiceTypeNodePort && typ != v1.ServiceTypeLoadBalancer:
		return 0
	case port == 0 && typ == v1.ServiceTypeNodePort:
		r.unusable(field, "set nodePort to a free port of the node port range", "the port of a NodePort Service has no nodePort")
		return 0
	case port == 0:
		return 0
	}
	n, _ := r.port(field, port)
	return n
}

func (r *Report) port(field string, port int32) (uint16, bool) {
	if port < 1 || port > 65535 {
		r.Malformed(field, "use a port from 1 to 65535", "%d is not a port", port)
		return 0, false
	}
	return uint16(port), true
}

func (r *Report) protocol(field string, p v1.Protocol) (model.Protocol, bool) {
	switch p {
	case "", v1.ProtocolTCP:
		return model.TCP, true
	case v1.ProtocolUDP:
		return model.UDP, true
	case v1.ProtocolSCTP:
		return model.SCTP, true
	}
	r.Malformed(field, "use TCP, UDP or SCTP", "%q is not a protocol of Services", p)
	return 0, false
}

func (r *Report) internalPolicy(svc *v1.Service) model.TrafficPolicy {
	if svc.Spec.InternalTrafficPolicy == nil {
		return model.PolicyCluster
	}
	return r.policy("spec.internalTrafficPolicy", string(*svc.Spec.InternalTrafficPolicy))
}

func (r *Report) externalPolicy(svc *v1.Service) model.TrafficPolicy {
	return r.policy("spec.externalTrafficPolicy", string(svc.Spec.ExternalTrafficPolicy))
}

func (r *Report) policy(field, value string) model.TrafficPolicy {
	switch value {
	case "Local":
		return model.PolicyLocal
	case "", "Cluster":
	default:
		r.Malformed(field, "use Cluster or Local", "%q is not a traffic policy", value)
	}
	return model.PolicyCluster
}

func (r *Report) affinity(svc *v1.Service) uint32 {
	switch svc.Spec.SessionAffinity {
	case v1.ServiceAffinityClientIP:
	case "", v1.ServiceAffinityNone:
		return 0
	default:
		r.Malformed("spec.sessionAffinity", "use None or ClientIP", "%q is not a session affinity", svc.Spec.SessionAffinity)
		return 0
	}
	config := svc.Spec.SessionAffinityConfig
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		return DefaultAffinity
	}
	seconds := *config.ClientIP.TimeoutSeconds
	used := min(max(seconds, 1), maxAffinity)
	if used != seconds {
		r.Malformed("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "use a timeout from 1 to 86400 seconds",
			"%d seconds is out of range", seconds)
	}
	return uint32(used)
}

// loadBalancer fills in what only Services of type LoadBalancer have.
func (r *Report) loadBalancer(svc *v1.Service, out *model.Service, health uint16) {
	out.LoadBalancerIPs, out.RoutedIPs = r.ingressIPs(svc)
	out.Filtered = len(svc.Spec.LoadBalancerSourceRanges) > 0
	out.SourceRanges = prefixes("spec.loadBalancerSourceRanges", svc.Spec.LoadBalancerSourceRanges, r.unusable)
	if out.ExternalPolicy == model.PolicyLocal {
		out.HealthCheckNodePort = health
	}
}

// ipModeRouter is the ipMode that KEP-6272 plans, which a controller gives an address to which others may
// have a route, too. API servers without it refuse it.
const ipModeRouter v1.LoadBalancerIPMode = "Router"

// ingressIPs returns the addresses that are the destination of packets when
// they arrive, and those of them that are routed. In other modes the load balancer has already replaced
// it.
func (r *Report) ingressIPs(svc *v1.Service) (all, routed []netip.Addr) {
	ingress := svc.Status.LoadBalancer.Ingress
	all = make([]netip.Addr, 0, len(ingress))
	for i := range ingress {
		in := &ingress[i]
		isRouted := in.IPMode != nil && *in.IPMode == ipModeRouter
		if in.IP == "" || in.IPMode != nil && *in.IPMode != v1.LoadBalancerIPModeVIP && !isRouted {
			continue
		}
		field := fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i)
		addr, ok := r.addr(field, in.IP, checkForwardable)
		if !ok {
			continue
		}
		if all = append(all, addr); isRouted {
			routed = append(routed, addr)
		}
	}
	return distinct(all), distinct(routed)
}
