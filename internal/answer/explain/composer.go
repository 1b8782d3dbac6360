package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/base/printable"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// maxEndpoints is how many endpoints an answer lists.
const maxEndpoints = 1000

// composer turns a result into an answer.
type composer struct {
	*result
	now  time.Time
	mode string
	// manifests is where the objects are, "" if they are at an API server.
	manifests string
	// notServed says which label makes a Service one of another proxy.
	notServed string

	status    *engine.FrontendStatus // nil without a frontend
	offloaded []string               // devices with a flow table
	kernel    *dataplane.Description // nil if it was not read
	kernelErr error

	pool   *plan.PoolDecision // of the service port, nil without one
	local  bool               // the packet takes the local pool
	answer Answer
}

func (c *composer) compose() Answer {
	d, a := &c.decision, &c.answer
	c.judge()
	p := &c.packet
	a.Packet = PacketAnswer{From: p.From.String(), Source: p.Source, SourcePort: p.SourcePort, Interface: c.in, Destination: p.To.Addr, Port: p.To.Port}
	switch {
	case !p.To.Addr.IsValid(): // there is no packet
		a.Packet.From = c.said
	case c.limits().OwnSource && c.said != "" && !p.Source.IsValid(): // as what it counts makes no difference
		a.Packet.From = c.said
	case c.said == plan.PodClient.String() && p.From == plan.OutsideClient:
		a.Packet.Asked = c.said
	}
	if p.To.Addr.IsValid() {
		a.Packet.Protocol = p.To.Protocol.String()
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
	a.Summary = c.summary()
	return *a
}

func (c *composer) judge() {
	d, a := &c.decision, &c.answer
	c.judgeKept()
	a.Verdict, a.Cause, a.Fate = verdict.Untouched, d.Cause.String(), d.Verdict.Text()
	switch {
	case c.undecided == noSuchService && len(c.problems) > 0:
		a.Verdict, a.Cause, a.Fate = verdict.Refused, string(verdict.InvalidObject), "not used"
	case c.undecided == noSuchService:
		a.Verdict, a.Cause, a.Fate = noService, c.undecided, ""
	case c.undecided != "" && c.taken != nil:
		a.Verdict, a.Cause, a.Fate = verdict.Refused, string(verdict.AddressTaken), "not used"
	case c.undecided != "":
		a.Verdict, a.Cause, a.Fate = verdict.Refused, c.undecided, "not used"
	case d.Frontend == nil && d.Verdict != plan.Pass:
		a.Verdict = verdict.Refused
	case d.Verdict == plan.Pass:
	case c.verdict.Word == verdict.Works && !c.inKernel():
		a.Verdict, a.Cause = verdict.Unknown, string(verdict.NotProgrammed)
	case c.verdict.Cause == verdict.NotProgrammed && d.Verdict == plan.Forward && c.inKernel(): // as it was before
		a.Verdict = verdict.Works
	default:
		a.Verdict, a.Since = c.verdict.Word, c.verdict.Since
		if c.verdict.Cause != "" {
			a.Cause = string(c.verdict.Cause)
		}
	}
	a.Flows = a.Verdict == verdict.Works
}

// judgeKept judges the packet of a client that session affinity keeps at one of several
// endpoints by that one, if they differ.
func (c *composer) judgeKept() {
	if v := &c.verdict; v.Word != verdict.WorksForSome || v.Cause != verdict.EndpointSilent && v.Cause != verdict.EndpointResets || c.answers == nil {
		return
	}
	kept, found := c.remembered()
	if !found || c.decision.Frontend.Affinity == 0 {
		return
	}
	to := evidence.To{AddrPort: kept.Endpoint, Protocol: c.packet.To.Protocol, From: c.packet.From}
	switch r := c.answers(to); r.State {
	case evidence.Fine:
		c.verdict.Word, c.verdict.Cause = verdict.Works, ""
	case evidence.Silent:
		c.verdict.Word, c.verdict.Since = verdict.NoAnswer, r.Since
		c.verdict.Why = fmt.Sprintf("session affinity keeps this client at %s, which does not answer", kept.Endpoint)
	case evidence.Resets:
		c.verdict.Word, c.verdict.Since = verdict.NoAnswer, r.Since
		c.verdict.Why = fmt.Sprintf("session affinity keeps this client at %s, which refuses connections", kept.Endpoint)
	}
}

func (c *composer) step(subject, format string, args ...any) {
	c.answer.Steps = append(c.answer.Steps, Step{subject, fmt.Sprintf(format, args...)})
}

func (c *composer) composeFrontend() {
	f := c.decision.Frontend
	c.answer.Service.Port = f.Port
	c.pool = c.evidence.PoolDecision(f)
	c.local = c.decision.Route.Local
	c.answer.Frontend = &FrontendAnswer{Address: f.Key.String(), Kind: f.Kind.String(), Pool: "cluster", Origin: c.origin().String()}
	if c.local {
		c.answer.Frontend.Pool = "local"
	}
	for _, o := range c.others {
		c.answer.Frontend.Others = append(c.answer.Frontend.Others, o.Text())
	}
	c.clientStep()
	c.frontendStep(f)
	c.filterStep(f)
	c.poolStep(f)
	if !c.directStep() {
		c.choiceStep(f)
	}
	c.masqueradeStep()
	if c.decision.Loopback {
		c.step("relay", "the proxy itself listens there, and connects to the endpoint")
	} else {
		c.statusStep()
		c.kernelStep()
		c.offloadStep()
	}
	c.listEndpoints()
}

func (c *composer) origin() plan.Origin {
	switch {
	case c.pool == nil:
		return plan.FromNothing
	case c.local:
		return c.pool.Local
	}
	return c.pool.Cluster
}

// reason is why an endpoint is not in the pool that the packet takes.
func (c *composer) reason(f *plan.EndpointDecision) plan.Reason {
	if c.local {
		return f.InLocal
	}
	return f.InCluster
}

func (c *composer) clientStep() {
	p := &c.packet
	switch {
	case c.limits().OwnSource: // it makes no difference how it is recognised
		c.step("client", "%s; %s does the same for all clients", c.client(), c.system())
	case p.From == plan.PodClient && p.Source.IsValid():
		c.step("client", "%s is a pod, recognised by %s", p.Source, c.detector.Text())
	case p.From == plan.PodClient:
		c.step("client", "a pod, recognised by %s", c.detector.Text())
	case p.From == plan.NodeClient && p.Source.IsValid():
		c.step("client", "this node itself, %s", p.Source)
	case p.From == plan.NodeClient:
		c.step("client", "this node itself")
	case c.said == plan.PodClient.String():
		c.step("client", "a pod, which counts as outside: %s", c.undetected())
	case p.Source.IsValid():
		c.step("client", "%s is neither a pod nor this node, so it counts as outside", p.Source)
	default:
		c.step("client", "outside: neither a pod nor this node")
	}
}

// client names the client, as the question does.
func (c *composer) client() string {
	switch {
	case c.packet.Source.IsValid():
		return c.packet.Source.String()
	case c.said == plan.NodeClient.String():
		return "this node itself"
	case c.said == plan.PodClient.String():
		return "a pod"
	}
	return "outside"
}

// limits are what the mode cannot do.
func (c *composer) limits() plan.Limits { return c.evidence.Limits() }

// system is what the mode programs.
func (c *composer) system() plan.System { return c.limits().System }

// undetected describes why pods are not recognised.
func (c *composer) undetected() string {
	if c.detectsOther {
		return fmt.Sprintf("pods are recognised in the other family only (set clusterCIDR to a range of %s, too)", model.FamilyOf(c.packet.To.Addr))
	}
	return plan.PodsNotDetected.Text()
}

func (c *composer) frontendStep(f *plan.Frontend) {
	at := netip.AddrPortFrom(c.packet.To.Addr, c.packet.To.Port)
	in := ""
	if f.IsRange() {
		in = fmt.Sprintf(", in its range %s: connections keep their port", f.PortText())
	}
	c.step("frontend", "%s/%s is the %s of Service %s, port %s%s", at, f.Protocol, f.Kind, f.Service, nameText(f.Port), in)
}

func (c *composer) filterStep(f *plan.Frontend) {
	if !f.Filtered {
		if s := c.evidence.Service; c.limits().NoSourceRanges && s != nil && s.Filtered {
			c.step("source ranges", "everybody may connect: %s has none", c.system())
			return
		}
		if s := c.evidence.Service; s != nil && f.OpenBeside(s) {
			c.step("source ranges", "everybody may connect here: loadBalancerSourceRanges is for load balancer IPs only, unless the annotation sluice/source-ranges-apply-to says all")
		}
		return
	}
	allowed := prefixes(f.Sources)
	if len(f.Sources) == 0 {
		allowed = "nobody: no range of loadBalancerSourceRanges is valid"
	}
	switch {
	case c.decision.Cause == plan.SourceRanges:
		c.step("source ranges", "dropped here: only these may connect: %s", allowed)
	case c.decision.Depends:
		c.step("source ranges", "only these may connect: %s; ask with --from and an IP to know of one client", allowed)
	default:
		c.step("source ranges", "may connect: the client is in %s", allowed)
	}
}

func (c *composer) poolStep(f *plan.Frontend) {
	if c.decision.Cause == plan.SourceRanges {
		return
	}
	total := 0
	if c.pool != nil {
		total = len(c.pool.Endpoints)
	}
	n := len(c.decision.Route.Endpoints)
	how := fmt.Sprintf("%d of %s", n, printable.Count(total, "endpoint"))
	switch why := c.originText(); {
	case total == 1 && n == 1 && c.origin() == plan.FromReady:
		how = "the only endpoint, which is ready"
	case why != "":
		how += ", " + why
	}
	switch {
	case c.local && (f.Kind == plan.ClusterIP || c.limits().OneRoute):
		c.step("pool", "endpoints on this node, since %s is Local: %s", f.Kind.Policy(), how)
	case c.local && c.decision.Loopback:
		c.step("pool", "endpoints on this node, since %s is Local: %s", f.Kind.Policy(), how)
	case c.local:
		c.step("pool", "endpoints on this node, since %s is Local and the client is outside: %s", f.Kind.Policy(), how)
	case f.Outside != nil:
		c.step("pool", "endpoints of the whole cluster, although %s is Local, for the client is inside: %s", f.Kind.Policy(), how)
	default:
		c.step("pool", "endpoints of the whole cluster, since %s is Cluster: %s", f.Kind.Policy(), how)
	}
	switch {
	case c.decision.Verdict != plan.Pass:
	case c.limits().NoRefusal:
		c.step("no endpoint", "%s is asked for nothing: the packet is neither forwarded nor refused", c.system())
	default:
		c.step("no endpoint", "the packet is left alone, as the Service asks, for others who have the address "+
			"(annotation service.kubernetes.io/no-reject-on-no-endpoints, or ipMode: Router in status.loadBalancer.ingress)")
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

// hintNote describes why topology hints are ignored, "" if they are not.
func (c *composer) hintNote() string {
	a := c.pool
	if a == nil || a.Hinted == 0 || c.local || c.origin() != plan.FromReady {
		return ""
	}
	switch {
	case a.Unhinted > 0:
		return fmt.Sprintf("hints do not count: %s of %d has none, and they count only if all have some",
			printable.Count(a.Unhinted, "ready endpoint"), a.Hinted+a.Unhinted)
	case c.evidence.Zone() == "":
		return "hints do not count: none names this node, and the node has no zone (label topology.kubernetes.io/zone)"
	}
	return fmt.Sprintf("hints do not count: none names this node or its zone (%s)", c.evidence.Zone())
}

func (c *composer) choiceStep(f *plan.Frontend) {
	if c.decision.Verdict != plan.Forward {
		return
	}
	remembered, found := c.remembered()
	route := c.decision.Route
	how := route.Choice()
	if at, ok := route.Endpoint(c.packet.Source); ok {
		how = fmt.Sprintf("%s, by the client's address (%s)", at, route.Algorithm)
	} else if route.ByClient() {
		how += "; ask with --from and an IP to know which"
	}
	switch {
	case f.Affinity > 0 && found:
		c.step("choice", "%s, which the kernel remembers for this client for another %s (session affinity)",
			remembered.Endpoint, printable.Duration(remembered.Expires))
	case len(route.Endpoints) == 1:
		c.step("choice", "the only one, %s", route.Endpoints[0].At(c.packet.To.Port))
	case f.Affinity == 0:
		c.step("choice", "%s, for each new connection", how)
	case c.limits().NoAffinityTimeout:
		c.step("choice", "%s, and then the same for this client for as long as %s decides (session affinity)", how, c.system())
	default:
		c.step("choice", "%s, and then the same for this client for %s (session affinity)", how, printable.Duration(time.Duration(f.Affinity)*time.Second))
	}
}

// remembered returns the endpoint that session affinity keeps the client at.
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
	if c.limits().OwnSource {
		c.sourceStep(why)
		return
	}
	reason := why.Text()
	if why == plan.PodsNotDetected {
		reason = c.undetected()
	}
	c.answer.Masquerade = &MasqueradeAnswer{Yes: yes, Reason: reason}
	if yes {
		c.step("masquerade", "yes, the endpoint sees this node's address: %s", reason)
		return
	}
	itself := ""
	if c.packet.From == plan.PodClient {
		itself = "unless it is the client itself"
	}
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

// sourceStep says what is known of the source address that endpoints see, if that is not the proxy's to decide.
func (c *composer) sourceStep(why plan.MasqueradeCause) {
	if why == plan.MechanismDecides {
		c.answer.SourceUnknown = true
		c.step("source", "which address the endpoint sees is up to %s", c.system())
		return
	}
	c.step("source", "%s is asked to let the endpoint see the client's address: %s", c.system(), why.Text())
}

func (c *composer) listEndpoints() {
	if c.pool == nil {
		return
	}
	endpoints := slices.Clone(c.pool.Endpoints)
	slices.SortStableFunc(endpoints, func(a, b plan.EndpointDecision) int { return rank(c.reason(&a)) - rank(c.reason(&b)) })
	for i := range endpoints {
		if i == maxEndpoints {
			c.answer.Omitted = len(endpoints) - i
			break
		}
		c.answer.Endpoints = append(c.answer.Endpoints, c.endpoint(&endpoints[i]))
	}
}

// rank sorts endpoints in the pool first.
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
		In: why == plan.InPool, Reason: why.String(), Text: f.Text(why, c.now),
	}
	if f.Port != 0 {
		e.Address = c.reached(f).String()
	}
	if e.In && c.answers != nil && f.Port != 0 {
		r := c.answers(evidence.To{AddrPort: c.reached(f), Protocol: c.packet.To.Protocol, From: c.packet.From})
		e.Answers, e.Failed, e.Since = r.State.String(), r.Failed, r.Since
	}
	if e.In && c.decision.Verdict == plan.Forward {
		e.Masqueraded, _ = c.decision.Masquerade(f.Endpoint.Addr)
		e.Weight = c.weight(c.reached(f))
	}
	return e
}

// reached is where an endpoint gets the connection.
func (c *composer) reached(f *plan.EndpointDecision) netip.AddrPort {
	if fe := c.decision.Frontend; fe != nil && fe.IsRange() {
		return netip.AddrPortFrom(f.Endpoint.Addr, c.packet.To.Port)
	}
	return netip.AddrPortFrom(f.Endpoint.Addr, f.Port)
}

// weight returns the weight of an endpoint of the pool, 0 if all have the same.
func (c *composer) weight(at netip.AddrPort) uint16 {
	at = c.decision.Frontend.TargetOf(c.packet.To.Port, at)
	for _, e := range c.decision.Route.Endpoints {
		if e.AddrPort == at {
			return e.Weight
		}
	}
	return 0
}

// summary describes what happens in a few words.
func (c *composer) summary() string {
	switch c.undecided {
	case noSuchService:
		if len(c.problems) > 0 {
			return "the Service is refused because of a mistake in it"
		}
		return "no such Service is known to this proxy"
	case plan.NoSuchPort.String():
		if c.taken != nil {
			return fmt.Sprintf("another Service has its address and port: %s belongs to %s", c.taken.Key, c.taken.To)
		}
		return plan.NoSuchPort.Text()
	}
	switch {
	case c.decision.Cause != plan.HasEndpoint:
		return c.refusal()
	case c.answer.Verdict == verdict.Unknown, c.verdict.Cause == verdict.ProgrammingFailed:
		return "would reach an endpoint, but " + c.system().String() + " is not programmed so"
	case !c.answer.Flows:
		return c.verdict.Why
	}
	if summary := c.directSummary(); summary != "" {
		return summary
	}
	switch {
	case len(c.decision.Route.Endpoints) == 1:
		return "reaches the only endpoint"
	}
	if remembered, found := c.remembered(); found && c.decision.Frontend.Affinity > 0 {
		return fmt.Sprintf("reaches %s of %s, where session affinity keeps this client", remembered.Endpoint, printable.Count(len(c.decision.Route.Endpoints), "endpoint"))
	}
	if at, ok := c.decision.Route.Endpoint(c.packet.Source); ok && c.decision.Frontend.Affinity == 0 {
		return fmt.Sprintf("reaches %s of %s", at, printable.Count(len(c.decision.Route.Endpoints), "endpoint"))
	}
	summary := "reaches one of " + printable.Count(len(c.decision.Route.Endpoints), "endpoint")
	if c.decision.Frontend.Affinity > 0 {
		summary += ", and then the same one again (session affinity)"
	}
	return summary
}

// refusal is why a packet is refused, or left alone, with what it comes from.
func (c *composer) refusal() string {
	if why := c.missed(); why != "" {
		return why
	}
	text := c.decision.Cause.Text()
	if c.decision.Cause == plan.NoEndpoints && c.verdict.Why != "" {
		text += ": " + c.verdict.Why
	}
	return text
}

// missed is why a packet to a node port that a Service has meets no frontend, "" if it is
// something else.
func (c *composer) missed() string {
	if c.decision.Frontend != nil || c.decision.Verdict != plan.Pass {
		return ""
	}
	for _, p := range c.answer.Problems {
		if slices.Contains([]string{"other-protocol", "other-family", "node-port-addresses", "loopback"}, p.Code) {
			return p.Text
		}
	}
	return ""
}
