package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/printable"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

func (c *composer) problem(code, remedy, format string, args ...any) {
	c.answer.Problems = append(c.answer.Problems, Advice{code, fmt.Sprintf(format, args...), remedy})
}

// addProblems adds what is wrong and what to do about it: first what keeps the
// packet from getting through, then the rest.
func (c *composer) addProblems() {
	switch why := c.decision.Cause; {
	case c.undecided == noSuchService && len(c.problems) > 0: // which say why
	case c.undecided == noSuchService:
		c.problem(noSuchService,
			c.look(fmt.Sprintf("look at it: kubectl -n %s get service %s -o yaml", c.service.Namespace, c.service.Name), "look for it in %s"),
			"either there is no Service %s, or it is not for this proxy: it is headless (clusterIP: None), of type ExternalName, "+
				"or %s", c.service, c.notServed)
	case c.decision.Frontend == nil:
	case why == plan.SourceRanges:
		c.sourceRangesProblem()
	case why == plan.NoEndpoints, why == plan.NoLocalEndpoints:
		c.emptyProblems()
	}
	c.programmingProblems()
	c.trafficProblems()
	if c.decision.Cause == plan.HasEndpoint && c.origin() == plan.FromTerminating {
		c.problem("terminating", "look why no other pod of the Service is ready",
			"only terminating endpoints are left, and they will be gone soon")
	}
	for _, s := range c.suggestions {
		c.suggestionProblem(s)
	}
	for _, p := range c.problems {
		c.problem("object", p.Remedy, "%s: %s", p.Object, p.What())
	}
}

// trafficProblems adds what connections showed.
func (c *composer) trafficProblems() {
	pods := c.look(fmt.Sprintf("look whether the pods run, and what they listen on: kubectl -n %s get pods -o wide", c.service.Namespace),
		"look whether the endpoints in %s exist")
	switch c.verdict.Cause {
	case verdict.EndpointSilent:
		c.problem(string(verdict.EndpointSilent), pods+"; or a firewall on the way drops packets: kube-proxy status names what it finds on this node",
			"%s: what is forwarded to an endpoint gets no answer", c.verdict.Why)
	case verdict.EndpointResets:
		c.problem(string(verdict.EndpointResets), pods+", and compare with targetPort of the Service",
			"%s: nothing listens on the port", c.verdict.Why)
	case verdict.ForwardingOff, verdict.Firewall, verdict.NoRoute, verdict.ConntrackFull:
		c.problem(string(c.verdict.Cause), c.verdict.Remedy, "%s: such connections get no answer, whatever the endpoints do", c.verdict.Why)
	}
}

// look returns where to look: with kubectl, or, without an API server, in the manifests,
// whose path a format has.
func (c *composer) look(kubectl, manifests string) string {
	if c.manifests == "" {
		return kubectl
	}
	return fmt.Sprintf(manifests, c.manifests)
}

func (c *composer) sourceRangesProblem() {
	remedy := "add a range with the client to spec.loadBalancerSourceRanges of the Service"
	if c.packet.Source.IsValid() {
		remedy = fmt.Sprintf("add a range with %s to spec.loadBalancerSourceRanges of the Service", c.packet.Source)
	}
	c.problem(plan.SourceRanges.String(), remedy, "the client is not among the sources that may connect: %s", prefixes(c.decision.Frontend.Sources))
}

func (c *composer) emptyProblems() {
	if c.decision.Cause == plan.NoLocalEndpoints {
		c.noLocalEndpoints()
	}
	counts := map[plan.Reason]int{}
	if c.pool != nil {
		for i := range c.pool.Endpoints {
			counts[c.reason(&c.pool.Endpoints[i])]++
		}
	}
	if len(counts) == 0 {
		c.noEndpoints()
	}
	for why := plan.OtherFamily; why <= plan.HintedElsewhere; why++ {
		if n := counts[why]; n > 0 {
			c.leftOut(why, n)
		}
	}
}

func (c *composer) noLocalEndpoints() {
	f := c.decision.Frontend
	text := fmt.Sprintf("%s is Local and no endpoint on this node (%s) can be used", f.Kind.Policy(), c.evidence.NodeName())
	remedy := "run an endpoint on every node whose pods use the Service (a DaemonSet)"
	if f.Kind != plan.ClusterIP {
		switch n := len(f.Route.Endpoints); n {
		case 1:
			text += "; there is one on another node"
		default:
			text += fmt.Sprintf("; there are %d on other nodes", n)
		}
		remedy = "send clients to a node with an endpoint (a load balancer finds out by the healthCheckNodePort)"
	}
	c.problem(plan.NoLocalEndpoints.String(), remedy+", or set "+f.Kind.Policy()+" to Cluster", "%s", text)
}

func (c *composer) noEndpoints() {
	text := "the Service has no EndpointSlice"
	add := "add an EndpointSlice with the label kubernetes.io/service-name: " + c.service.Name + " to %s"
	if len(c.evidence.Slices) > 0 {
		text = "the EndpointSlices of the Service are empty"
		add = "add endpoints to them in %s"
	}
	remedy := c.look(fmt.Sprintf("look whether the selector of the Service matches pods: kubectl -n %s get endpointslices -l kubernetes.io/service-name=%s",
		c.service.Namespace, c.service.Name), add)
	if len(c.unlabelled) > 0 {
		text += fmt.Sprintf("; without the label kubernetes.io/service-name, and so of no Service: %s", printable.List(c.unlabelled, model.Name.String))
		remedy = "if one of them is meant for this Service, give it the label kubernetes.io/service-name: " + c.service.Name + "; otherwise " + remedy
	}
	c.problem("no-endpoints", remedy, "%s", text)
}

// leftOut adds that endpoints cannot be used, for one reason.
func (c *composer) leftOut(why plan.Reason, n int) {
	pods := c.look(fmt.Sprintf("look at the pods and their readiness: kubectl -n %s get pods -o wide", c.service.Namespace),
		"look at the conditions of the endpoints in %s")
	text := printable.Count(n, "endpoint") + " " + why.Text()
	switch why {
	case plan.OtherFamily:
		c.problem(why.String(), "add the family to spec.ipFamilies of the Service", "%s", text)
	case plan.MissingPort:
		port := &c.pool.Port
		c.problem(why.String(), "a service port and its endpoints' port must have the same name and protocol: correct the name in the EndpointSlice, or a targetPort that no container has",
			"%s: the Service needs a %s port %s, its slices have %s", text, port.Protocol, nameText(port.Name), c.slicePorts())
	case plan.BadAddress:
		c.problem(why.String(), "give the endpoints addresses that other nodes can reach", "%s", text)
	case plan.NotReady, plan.NotServing:
		c.problem(why.String(), pods, "%s", text)
	case plan.Drained:
		c.problem(why.String(), "give the EndpointSlice a weight above 0, or remove the annotation", "%s", text)
	}
}

// slicePorts lists the ports of the slices of the packet's family.
func (c *composer) slicePorts() string {
	var words []string
	for _, s := range c.evidence.Slices {
		for _, p := range s.Ports {
			word := fmt.Sprintf("%s port %s", p.Protocol, nameText(p.Name))
			if s.Family == c.pool.Family && !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	if len(words) == 0 {
		return "no ports"
	}
	return printable.List(words, func(w string) string { return w })
}

// composeMiss describes a packet that meets no frontend.
func (c *composer) composeMiss() {
	if c.undecided != "" {
		return
	}
	c.clientStep()
	to := c.packet.To
	switch why := c.decision.Cause; {
	case why == plan.NoSuchPort && to.Addr.IsLoopback():
		c.step("frontend", "node ports are not served on loopback addresses here, and packets to them are rejected, because of --reject-localhost-nodeports")
	case why == plan.NoSuchPort:
		c.step("frontend", "%s is a ClusterIP in use, and every port of it that no Service has is rejected", to.Addr)
	case why == plan.UnusedAddress:
		c.step("frontend", "%s is in a service CIDR, but no Service has it", to.Addr)
		c.problem(why.String(), "use the ClusterIP that the Service has now: kube-proxy services lists them", "no Service has the address %s", to.Addr)
	case why == plan.NoIPv6:
		c.step("frontend", "this node does IPv4 only: the proxy does not handle IPv6 packets")
		c.problem(why.String(), "use an IPv4 address, or switch IPv6 on, on the node (sysctl net.ipv6.conf.all.disable_ipv6=0), and start the proxy again",
			"%s", why.Text())
	case why == plan.NodePortsOnly:
		c.step("frontend", "%s, port %d/%s, is not a node port: the proxy does not touch the packet", to.Addr, to.Port, to.Protocol)
		c.problem(why.String(), "connect to a node port, or start the proxy without --sandbox, as root", "%s", why.Text())
	default:
		c.step("frontend", "no Service has %s, port %d/%s: the proxy does not touch the packet", to.Addr, to.Port, to.Protocol)
	}
}

func (c *composer) suggestionProblem(s suggestion) {
	switch s.kind {
	case hasPorts:
		c.problem(plan.NoSuchPort.String(), "use one of these ports, or add the port to the Service",
			"Service %s has no such port; it has %s", s.service, printable.List(s.ports, portText))
	case noPorts:
		c.problem(plan.NoSuchPort.String(), c.look("look at its ports and addresses: kubectl -n "+s.service.Namespace+" get service "+s.service.Name+" -o yaml", "look at its ports and addresses in %s"),
			"Service %s has nothing here that such a client could connect to; its ports are: %s", s.service, portsOrNone(s.ports))
	case otherProtocol:
		c.problem("other-protocol", "ask for that protocol: append "+fmt.Sprintf("/%s", s.ports[0].Protocol),
			"the node port is Service %s's, for %s", s.service, s.ports[0].Protocol)
	case similarName:
		c.problem("similar-name", "ask for "+s.service.String(), "did you mean %s?", s.service)
	case sameName:
		c.problem("same-name", "ask for "+s.service.String(), "there is a Service of that name in namespace %s", s.service.Namespace)
	case isEndpoint:
		c.problem("endpoint", "", "the address is an endpoint of Service %s: packets to it go there directly", s.service)
	case otherFamily:
		c.problem("other-family", "use an address of that family, or make the Service dual-stack (spec.ipFamilyPolicy: PreferDualStack)",
			"node port %d/%s is Service %s's, which is of %s only", s.ports[0].NodePort, s.ports[0].Protocol, s.service, model.FamilyOf(s.ips[0]))
	case nodePortIPs:
		c.problem("node-port-addresses", "use one of those addresses, or set nodePortAddresses (--nodeport-addresses)",
			"the node port is Service %s's, but node ports answer on these addresses only: %s", s.service, printable.List(s.ips, netip.Addr.String))
	case unservedLoopback:
		c.problem("loopback", "use an address of the node, or add the word localhost to nodePortAddresses (--nodeport-addresses), which serves TCP and UDP",
			"node port %d/%s is Service %s's, but is not served on loopback addresses", s.ports[0].NodePort, s.ports[0].Protocol, s.service)
	case orphanSlices:
		c.problem("foreign", "nothing, if it is headless, of type ExternalName or implemented by another proxy",
			"EndpointSlices of Service %s are known, the Service is not", s.service)
	case onlyClusterIP:
		c.problem("cluster-ip-only", "make it a Service of type NodePort or LoadBalancer for clients outside",
			"Service %s has no address for clients outside the cluster; the answer is for its ClusterIP", s.service)
	}
}

func portsOrNone(ports []model.ServicePort) string {
	if len(ports) == 0 {
		return "none"
	}
	return printable.List(ports, portText)
}
