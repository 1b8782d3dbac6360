package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/plan"
	"sluice/internal/printable"
)

// maxEndpoints is how many endpoints an answer lists.
const maxEndpoints = 1000

// composer makes an answer of a result.
type composer struct {
	*result
	now  time.Time
	mode string

	status    *engine.FrontendStatus // nil without a frontend
	kernel    *dataplane.Description // nil if it was not asked
	kernelErr error

	account *plan.PoolDecision // of the service port, nil without one
	local   bool               // the packet takes the local pool
	answer  Answer
}

func (c *composer) compose() Answer {
	d, a := &c.decision, &c.answer
	a.Verdict, a.Cause = verdictWord(d.Verdict), d.Cause.String()
	if c.undecided != "" {
		a.Verdict, a.Cause = unknown, c.undecided
	}
	p := &c.packet
	a.Packet = PacketAnswer{From: p.From.String(), Source: p.Source, Interface: c.in, Destination: p.To.Addr, Port: p.To.Port}
	if p.To.Addr.IsValid() {
		a.Packet.Protocol = p.To.Protocol.String()
	} else {
		a.Packet.From = c.said
	}
	if c.service.Name != "" {
		a.Service = &ServiceAnswer{Namespace: c.service.Namespace, Name: c.service.Name}
	}
	if d.Frontend != nil {
		c.composeFrontend()
	} else {
		c.composeMiss()
	}
	c.addProblems()
	a.Flows = d.Verdict == plan.Forward && c.inKernel()
	a.Summary = c.summary()
	return *a
}

func (c *composer) step(subject, format string, args ...any) {
	c.answer.Steps = append(c.answer.Steps, Step{subject, fmt.Sprintf(format, args...)})
}

func (c *composer) composeFrontend() {
	f := c.decision.Frontend
	c.answer.Service.Port = f.Port
	c.account = c.evidence.PoolDecision(f)
	c.local = c.decision.Route.Local
	c.answer.Frontend = &FrontendAnswer{Address: f.Key.String(), Kind: f.Kind.String(), Pool: "cluster", Origin: c.origin().String()}
	if c.local {
		c.answer.Frontend.Pool = "local"
	}
	for _, o := range c.others {
		c.answer.Frontend.Others = append(c.answer.Frontend.Others, frontendWord(o))
	}
	c.clientStep()
	c.frontendStep(f)
	c.filterStep(f)
	c.poolStep(f)
	c.affinityStep(f)
	c.masqueradeStep()
	if c.decision.Relayed {
		c.step("relay", "the proxy itself listens there, and connects to the endpoint")
	} else {
		c.statusStep()
		c.kernelStep()
	}
	c.listEndpoints()
}

func (c *composer) origin() plan.Origin {
	switch {
	case c.account == nil:
		return plan.FromNothing
	case c.local:
		return c.account.Local
	}
	return c.account.Cluster
}

// reason tells why an endpoint is not in the pool that the packet takes.
func (c *composer) reason(f *plan.EndpointDecision) plan.Reason {
	if c.local {
		return f.InLocal
	}
	return f.InCluster
}

func (c *composer) clientStep() {
	p, who := &c.packet, "somebody"
	if p.Source.IsValid() {
		who = p.Source.String()
	}
	switch {
	case p.From == plan.PodClient && p.Source.IsValid():
		c.step("client", "%s counts as a pod: %s does", who, c.detectorText())
	case p.From == plan.PodClient:
		c.step("client", "a pod: %s counts as one", c.detectorText())
	case p.From == plan.NodeClient:
		c.step("client", "this node itself, %s", who)
	case c.said == plan.PodClient.String():
		c.step("client", "a pod, which counts as outside: nothing is configured by which pods are recognised (detectLocalMode)")
	case p.Source.IsValid():
		c.step("client", "%s is neither a pod nor this node, so it counts as outside", who)
	default:
		c.step("client", "somebody outside: neither a pod nor this node")
	}
}

func (c *composer) detectorText() string {
	switch d := c.detector; {
	case d.Interface != "":
		return "what comes through interface " + d.Interface
	case d.InterfacePrefix != "":
		return "what comes through an interface named " + d.InterfacePrefix + "*"
	default:
		return "what comes from " + prefixList(d.Sources)
	}
}

func (c *composer) frontendStep(f *plan.Frontend) {
	at := netip.AddrPortFrom(c.packet.To.Addr, c.packet.To.Port)
	c.step("frontend", "%s/%s is the %s of Service %s, port %s", at, f.Protocol, kindWord(f.Kind), f.Service, nameWord(f.Port))
}

func (c *composer) filterStep(f *plan.Frontend) {
	if !f.Filtered {
		return
	}
	allowed := prefixList(f.Sources)
	if len(f.Sources) == 0 {
		allowed = "nobody: no range of loadBalancerSourceRanges is valid"
	}
	switch {
	case c.decision.Cause == plan.SourceRange:
		c.step("source ranges", "dropped here: only these may connect: %s", allowed)
	case c.decision.Depends:
		c.step("source ranges", "only these may connect: %s; ask with --from and an IP to know of one client", allowed)
	default:
		c.step("source ranges", "may connect: the client is in %s", allowed)
	}
}

func (c *composer) poolStep(f *plan.Frontend) {
	if c.decision.Cause == plan.SourceRange {
		return
	}
	total := 0
	if c.account != nil {
		total = len(c.account.Endpoints)
	}
	n := len(c.decision.Route.Endpoints)
	how := fmt.Sprintf("%d of %s", n, count(total, "endpoint"))
	if why := c.originText(); why != "" {
		how += ", " + why
	}
	switch {
	case c.local && f.Kind == plan.ClusterIP:
		c.step("pool", "endpoints on this node, since internalTrafficPolicy is Local: %s", how)
	case c.local:
		c.step("pool", "endpoints on this node, since externalTrafficPolicy is Local and the client is outside: %s", how)
	case f.Outside != nil:
		c.step("pool", "endpoints of the whole cluster, although externalTrafficPolicy is Local, for the client is inside: %s", how)
	default:
		c.step("pool", "endpoints of the whole cluster, since %s is Cluster: %s", policyWord(f.Kind), how)
	}
	if note := c.hintNote(); note != "" {
		c.step("topology", "%s", note)
	}
}

func (c *composer) originText() string {
	switch c.origin() {
	case plan.FromReady:
		return "those that are ready"
	case plan.FromNodeHints:
		return fmt.Sprintf("those whose hints name this node (%s)", c.evidence.NodeName())
	case plan.FromZoneHints:
		return fmt.Sprintf("those whose hints name this node's zone (%s)", c.evidence.Zone())
	case plan.FromTerminating:
		return "which are terminating but still serve: none is ready"
	}
	return ""
}

// hintNote says why hints that are there do not count.
func (c *composer) hintNote() string {
	a := c.account
	if a == nil || a.Hinted == 0 || c.local || c.origin() != plan.FromReady {
		return ""
	}
	switch {
	case a.Unhinted > 0:
		return fmt.Sprintf("hints do not count: %s of %d has none, and they count only if all have some",
			count(a.Unhinted, "ready endpoint"), a.Hinted+a.Unhinted)
	case c.evidence.Zone() == "":
		return "hints do not count: none names this node, and the node has no zone (label topology.kubernetes.io/zone)"
	}
	return fmt.Sprintf("hints do not count: none names this node or its zone (%s)", c.evidence.Zone())
}

func (c *composer) affinityStep(f *plan.Frontend) {
	remembered, found := c.remembered()
	switch {
	case c.decision.Verdict != plan.Forward:
	case f.Affinity == 0:
		c.step("choice", "any of them, evenly, for each new connection")
	case found:
		c.step("choice", "%s, which the kernel remembers for this client for another %s (session affinity)",
			remembered.Endpoint, printable.Duration(remembered.Expires))
	default:
		c.step("choice", "any of them, and then the same for this client for %s (session affinity)", printable.Duration(time.Duration(f.Affinity)*time.Second))
	}
}

// remembered is the endpoint that the kernel has the client stay with.
func (c *composer) remembered() (r dataplane.Remembered, found bool) {
	if c.kernel == nil {
		return r, false
	}
	for _, r := range c.kernel.Remembered {
		if c.decision.Route.Contains(r.Endpoint) {
			return r, true
		}
	}
	return r, false
}

func (c *composer) masqueradeStep() {
	if c.decision.Verdict != plan.Forward {
		return
	}
	yes, why := c.decision.Masquerade(netip.Addr{})
	reason := masqueradeWord(why)
	c.answer.Masquerade = &MasqueradeAnswer{Yes: yes, Reason: reason}
	if yes {
		c.step("masquerade", "yes, the endpoint sees this node's address: %s", reason)
		return
	}
	itself := "unless it is the client itself"
	if c.packet.Source.IsValid() {
		itself = ""
		if slices.ContainsFunc(c.decision.Route.Endpoints, func(e plan.Endpoint) bool { return e.Addr() == c.packet.Source }) {
			itself = "but for the client itself, which sees this node's"
		}
	}
	if itself != "" {
		itself = ", " + itself
	}
	c.step("masquerade", "no, the endpoint sees the client's address%s: %s", itself, reason)
}

func (c *composer) listEndpoints() {
	if c.account == nil {
		return
	}
	fates := slices.Clone(c.account.Endpoints)
	slices.SortStableFunc(fates, func(a, b plan.EndpointDecision) int { return rank(c.reason(&a)) - rank(c.reason(&b)) })
	for i := range fates {
		if i == maxEndpoints {
			c.answer.Omitted = len(fates) - i
			break
		}
		c.answer.Endpoints = append(c.answer.Endpoints, c.endpoint(&fates[i]))
	}
}

// rank puts endpoints that are in the pool first.
func rank(why plan.Reason) int {
	if why == plan.InPool {
		return 0
	}
	return 1
}

func (c *composer) endpoint(f *plan.EndpointDecision) EndpointAnswer {
	why := c.reason(f)
	e := EndpointAnswer{
		Address: f.Endpoint.Addr.String(), Node: f.Endpoint.Node, Local: f.Local, Slice: f.Slice.String(),
		In: why == plan.InPool, Reason: why.String(), Text: fateWord(why, f, &c.account.Port),
	}
	if f.Port != 0 {
		e.Address = netip.AddrPortFrom(f.Endpoint.Addr, f.Port).String()
	}
	if e.In && c.decision.Verdict == plan.Forward {
		e.Masqueraded, _ = c.decision.Masquerade(f.Endpoint.Addr)
	}
	return e
}

// summary says in a few words what the verdict is for.
func (c *composer) summary() string {
	switch c.undecided {
	case noSuchService:
		return "no such Service is known to this proxy"
	case plan.UnknownPort.String():
		return "there is no such port"
	}
	switch c.decision.Cause {
	case plan.HasEndpoint:
		if !c.answer.Flows {
			return "would reach an endpoint, but the kernel is not programmed so"
		}
		if len(c.decision.Route.Endpoints) == 1 {
			return "reaches the only endpoint"
		}
		return "reaches one of " + count(len(c.decision.Route.Endpoints), "endpoint")
	case plan.SourceRange:
		return "loadBalancerSourceRanges does not admit the client"
	case plan.NoLocalEndpoint:
		return "the Service has endpoints, but none on this node"
	case plan.NoEndpoints:
		return "the Service has no endpoint that can be used"
	case plan.UnknownPort:
		return "there is no such port"
	case plan.UnallocatedAddress:
		return "no Service has this address"
	case plan.NoIPv6:
		return "this node does no IPv6"
	}
	return "no Service has this address and port"
}
