package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/printable"
	"sluice/internal/model"
)

const (
	// MaxDirectNodes bounds how many nodes may have endpoints of a Service with direct return: with more, some
	// would have twice the share of others.
	MaxDirectNodes = 500
	// MaxDirectTables and MaxDirectTablesNode are how many lookup tables for direct return the Services of a
	// namespace and all Services together may have.
	MaxDirectTables     = 1024
	MaxDirectTablesNode = 2048
)

// planDirectReturn returns what applies to the whole node, nil if direct return is switched off.
func planDirectReturn(cfg *Config, state *model.State) *DirectReturn {
	if !cfg.DirectReturn || !cfg.CanDirectReturn || cfg.NodePortsOnly {
		return nil
	}
	out := &DirectReturn{Device: cfg.DirectDevice}
	add := func(name string, self bool, ips []netip.Addr, primary func(model.Family) netip.Addr) {
		n := DirectNode{Name: name, Self: self, IPs: cfg.served(ips)}
		for _, f := range cfg.Families() {
			path := model.Path{}
			if ip := primary(f); ip.IsValid() {
				path = state.Path(ip)
			}
			if f == model.IPv4 {
				n.IPv4 = path
			} else {
				n.IPv6 = path
			}
		}
		out.Nodes = append(out.Nodes, n)
	}
	for _, p := range state.Peers() {
		if p.Name != cfg.NodeName {
			add(p.Name, false, p.IPs, p.PrimaryIP)
		}
	}
	own := primaryIPs(cfg.NodeIP, state.Node(), state.HostIPs())
	ips := own
	if node := state.Node(); node != nil {
		ips = node.IPs
	}
	add(cfg.NodeName, true, ips, func(f model.Family) netip.Addr { return oneOf(f, own) })
	slices.SortFunc(out.Nodes, func(a, b DirectNode) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// wantsDirect reports whether a Service asks for direct return, and has an address for it.
func wantsDirect(svc *model.Service) bool {
	return svc.Direct != "" && (len(svc.LoadBalancerIPs) > 0 || len(svc.ExternalIPs) > 0 || hasNodePort(svc))
}

// directTables is how many lookup tables for direct return a Service has on every node.
func directTables(env *environment, svc *model.Service) int {
	if !env.directReturn || !wantsDirect(svc) || directFault(svc) != (fault{}) {
		return 0
	}
	return perPort(svc)
}

// fault is why a Service has no direct return, and a remedy.
type fault struct{ code, field, reason, remedy string }

// directCode begins the codes of problems for which a Service that asks for direct return has none.
const directCode = "direct-return-"

// DirectFallbacks counts the Services that ask for direct return and are served the ordinary way, at least in part,
// by why. These words are an interface and never change.
func (d *Desired) DirectFallbacks() map[string]int {
	out := map[string]int{}
	for _, problems := range d.Problems {
		seen := map[string]struct{}{} // several ports may have one reason
		for _, p := range problems {
			reason, is := strings.CutPrefix(p.Code, directCode)
			if _, again := seen[reason]; is && !again {
				seen[reason] = struct{}{}
				out[reason]++
			}
		}
	}
	return out
}

// directFault returns what of a Service does not go with direct return; nothing of it depends on the node.
func directFault(svc *model.Service) fault {
	switch {
	case svc.ExternalPolicy == model.PolicyLocal:
		return fault{"traffic-policy", "spec.externalTrafficPolicy", "it is Local: clients outside get endpoints of the node that they ask, which see their addresses already",
			"set it to Cluster, or remove the annotation"}
	case svc.Filtered:
		return fault{"source-ranges", "spec.loadBalancerSourceRanges", "the ranges are enforced where connections are tracked, which is not the node that passes them on",
			"remove the ranges and restrict clients by a NetworkPolicy, which then sees their addresses; or remove the annotation"}
	}
	return fault{}
}

// checkDirect decides whether external addresses of the Service may have direct return, and reports why they
// do not. What depends on the endpoints of a port is for direct.
func (d *draft) checkDirect() {
	svc, env := d.service, d.env
	if !wantsDirect(svc) {
		return
	}
	field := "metadata.annotations[" + svc.Direct + "]"
	why := directFault(svc)
	refused, over := env.directTables.refused[svc.Name]
	switch {
	case !env.canDirectReturn:
		why = fault{"mode", field, "in the proxy mode of this node connections are not passed on to the nodes that answer them",
			"remove the annotation, or choose another proxy mode"}
	case !env.directReturn:
		why = fault{"off", field, "direct return is switched off on this node",
			"start the proxies with --direct-return=auto, or remove the annotation"}
	case why == fault{} && over:
		why = fault{"too-many-tables", field, refused, "remove the annotation from other Services"}
	}
	if why == (fault{}) {
		d.directs = true
		return
	}
	d.ordinary(why)
}

// ordinary reports why clients outside take the ordinary way.
func (d *draft) ordinary(why fault) {
	what := "no direct return: "
	if d.service.ExternalPolicy == model.PolicyCluster {
		what = "no direct return, so that clients outside are masqueraded: "
	}
	d.problemOnce(model.Problem{
		Field:  why.field,
		Reason: what + why.reason,
		Remedy: why.remedy,
		Code:   directCode + why.code,
	})
}

// direct returns which nodes answer clients outside at the external addresses of a service port, nil if none
// does. All nodes must find the same: it depends on the objects only, and neither on this node nor on what it
// has observed. In particular, endpoints that are left out because they do not answer here count.
func (d *draft) direct(port *model.ServicePort, f model.Family, cluster *Route) *Direct {
	if !d.directs {
		return nil
	}
	cs := d.work
	usable := cs.any(func(c *candidate) bool { return c.usable })
	shares := map[string]uint32{}
	var homeless netip.Addr
	for i := range cs.found {
		c := &cs.found[i]
		if cs.drained(c) || !c.usable && (usable || !c.fallback) {
			continue
		}
		e := cs.of(c)
		if e.Hints != nil {
			d.ordinary(fault{"topology-hints", "", fmt.Sprintf("the endpoints of port %s have topology hints, by which nodes have different ones", portText(port)),
				"set trafficDistribution to none, or remove the annotation"})
			return nil
		}
		if e.Node == "" && !homeless.IsValid() {
			homeless = e.Addr
		}
		share := uint32(1)
		if cs.weighted {
			share = uint32(c.weight)
		}
		shares[e.Node] += share
	}
	switch {
	case len(shares) == 0:
		return nil
	case port.Protocol == model.SCTP:
		d.ordinary(fault{"sctp", "spec.ports", fmt.Sprintf("port %s is of SCTP", portText(port)), "none is needed: its other ports have it"})
		return nil
	case homeless.IsValid():
		d.ordinary(fault{"unknown-node", "", fmt.Sprintf("it is not known on which node endpoint %s of port %s is", homeless, portText(port)),
			"have its EndpointSlice say so in nodeName, or remove the annotation"})
		return nil
	case len(shares) > MaxDirectNodes:
		d.ordinary(fault{"too-many-nodes", "", fmt.Sprintf("port %s has endpoints on %s, and direct return is for at most %d", portText(port), printable.Count(len(shares), "node"), MaxDirectNodes),
			"split the Service, or remove the annotation"})
		return nil
	}
	out := &Direct{ByAddress: d.service.Affinity > 0 || byClient(d.service), Local: d.directLocal(cluster)}
	for name, share := range shares {
		out.Nodes = append(out.Nodes, NodeShare{name, share})
	}
	slices.SortFunc(out.Nodes, func(a, b NodeShare) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// byClient reports whether a Service asks for an endpoint that depends on nothing but the client's address.
func byClient(svc *model.Service) bool {
	return svc.AlgorithmChosen && (svc.Algorithm == model.SourceHash || svc.Algorithm == model.Maglev)
}

// directLocal returns the endpoints of the cluster pool on this node as the pool of connections that other
// nodes pass on, nil for none. There is no memory of clients: affinity is by their address.
func (d *draft) directLocal(cluster *Route) *Route {
	out := &Route{Local: true}
	for _, e := range cluster.Endpoints {
		if e.Local {
			out.Endpoints = append(out.Endpoints, e)
		}
	}
	switch {
	case len(out.Endpoints) == 0:
		return nil
	case cluster.ByClient():
		out.Algorithm = cluster.Algorithm
	case d.service.Affinity > 0:
		out.Algorithm = model.SourceHash
	}
	return out
}
