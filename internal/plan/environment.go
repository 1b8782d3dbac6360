package plan

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// environment is what the plan of a Service depends on besides the Service and
// its slices. It is kept small so that it rarely changes: when it does, every
// Service is planned again.
type environment struct {
	nodeName string
	zone     string
	// nodeIPs only matter to Services with source ranges.
	nodeIPs []netip.Addr
	// hostIPs only matter to a balancer.
	hostIPs []netip.Addr
	// ownNodePortIPs are where the proxy itself accepts connections to node ports. They only
	// matter to Services that have some.
	ownNodePortIPs []netip.Addr
	// podsKnown4 and podsKnown6 say that a detector recognises pods.
	podsKnown4, podsKnown6 bool
	masqueradeAll          bool
	noExternalIPs          bool
	externalIPRanges       []netip.Prefix
	frontendsOnly          bool
	nodePortsOnly          bool
	noIPv6                 bool
	algorithms             model.Algorithms
	balancer               *Balancer // the kernel's, nil for none
	defaultAlgorithm       model.Algorithm
	canEject, eject        bool
	proxyConnects          bool
	portRanges             bool
	limits                 Limits
	preserveDestination    bool
	healthPort             uint16
	// Whether connections can be passed on to the nodes that answer them, and whether that is switched on.
	canDirectReturn, directReturn bool
	// maglevTables and directTables say which Services may have lookup tables.
	maglevTables, directTables *tableBudget
}

func newEnvironment(cfg *Config, state *model.State, settings *Settings) environment {
	env := environment{
		nodeName:      cfg.NodeName,
		nodeIPs:       state.HostIPs(),
		hostIPs:       state.HostIPs(),
		podsKnown4:    settings.IPv4.Enabled(),
		podsKnown6:    settings.IPv6.Enabled(),
		masqueradeAll: cfg.MasqueradeAll,
		noExternalIPs: cfg.NoExternalIPs,
		frontendsOnly: cfg.FrontendsOnly,
		nodePortsOnly: cfg.NodePortsOnly,
		noIPv6:        cfg.NoIPv6,
		algorithms:    cfg.Algorithms,

		externalIPRanges: cfg.ExternalIPRanges,
		defaultAlgorithm: cfg.DefaultAlgorithm,
		proxyConnects:    cfg.ProxyConnects,
		portRanges:       cfg.PortRanges,
		limits:           cfg.Limits,
		healthPort:       cfg.HealthPort,

		preserveDestination: cfg.PreserveDestination,
		canEject:            cfg.CanEject,
		eject:               cfg.Eject,
		canDirectReturn:     cfg.CanDirectReturn,
		directReturn:        settings.DirectReturn != nil,
	}
	if b := cfg.Balancer; b != (Balancer{}) {
		env.balancer = &b
	}
	if cfg.ProxyConnects || cfg.NodePortsOnly {
		env.ownNodePortIPs = settings.NodePortIPs
	}
	if node := state.Node(); node != nil {
		env.zone = node.Zone
		env.nodeIPs = node.IPs
	}
	if cfg.NodeIP.IsValid() {
		env.nodeIPs = append([]netip.Addr{cfg.NodeIP}, env.nodeIPs...)
	}
	return env
}

// concerns reports whether the plan of a Service made in another environment
// may be different in this one.
func (env *environment) concerns(svc *model.Service, other *environment) bool {
	return env.nodeName != other.nodeName ||
		env.zone != other.zone ||
		env.podsKnown4 != other.podsKnown4 ||
		env.podsKnown6 != other.podsKnown6 ||
		env.masqueradeAll != other.masqueradeAll ||
		env.noExternalIPs != other.noExternalIPs ||
		len(svc.ExternalIPs) > 0 && !slices.Equal(env.externalIPRanges, other.externalIPRanges) ||
		env.frontendsOnly != other.frontendsOnly ||
		env.nodePortsOnly != other.nodePortsOnly ||
		env.noIPv6 != other.noIPv6 ||
		env.algorithms != other.algorithms ||
		!env.balancer.same(other.balancer) ||
		env.defaultAlgorithm != other.defaultAlgorithm ||
		env.canEject != other.canEject ||
		env.eject != other.eject ||
		env.canDirectReturn != other.canDirectReturn ||
		env.directReturn != other.directReturn ||
		env.proxyConnects != other.proxyConnects ||
		env.portRanges != other.portRanges ||
		env.limits != other.limits ||
		env.preserveDestination != other.preserveDestination ||
		env.healthPort != other.healthPort ||
		svc.Filtered && !slices.Equal(env.nodeIPs, other.nodeIPs) ||
		hasNodePort(svc) && !slices.Equal(env.ownNodePortIPs, other.ownNodePortIPs) ||
		env.balancer != nil && !slices.Equal(env.hostIPs, other.hostIPs)
}

func hasNodePort(svc *model.Service) bool {
	return slices.ContainsFunc(svc.Ports, func(p model.ServicePort) bool { return p.NodePort != 0 })
}

// isEndpoint reports whether the node itself is an endpoint of a route.
func (env *environment) isEndpoint(r *Route) bool {
	return slices.ContainsFunc(r.Endpoints, func(e Endpoint) bool { return slices.Contains(env.hostIPs, e.Addr()) })
}

func (env *environment) serves(f model.Family) bool { return f != model.IPv6 || !env.noIPv6 }

func (env *environment) podsKnown(f model.Family) bool {
	if f == model.IPv4 {
		return env.podsKnown4
	}
	return env.podsKnown6
}

func (env *environment) local(e *model.Endpoint) bool {
	return env.nodeName != "" && e.Node == env.nodeName
}

// masquerade returns which connections to a kind of frontend are masqueraded,
// and why.
func (env *environment) masquerade(kind Kind, family model.Family, external model.TrafficPolicy) (Masquerade, MasqueradeCause) {
	switch {
	case env.nodePortsOnly:
		return MasqueradeAlways, ProxyConnects
	case env.limits.OwnSource && kind != ClusterIP && external == model.PolicyLocal:
		return MasqueradeNever, ExternalPolicyLocal
	case env.limits.OwnSource:
		return MasqueradeUnknown, MechanismDecides
	case kind != ClusterIP && external == model.PolicyLocal:
		return MasqueradeNode, ExternalPolicyLocal
	case kind != ClusterIP:
		return MasqueradeAlways, ExternalPolicyCluster
	case env.masqueradeAll:
		return MasqueradeAlways, MasqueradeAllSet
	case env.podsKnown(family):
		return MasqueradeOffCluster, ClientNotPod
	}
	return MasqueradeNever, PodsNotDetected
}
