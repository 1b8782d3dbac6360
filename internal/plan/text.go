package plan

import (
	"fmt"
	"strings"
	"time"

	"sluice/internal/base/printable"
	"sluice/internal/model"
)

// The Text methods describe values in words, for people: explain, diff, status and
// the page all take their wording from here. The String methods of the same types
// are words for programs, which do not change.

// Text describes what happened to the packet.
func (v Verdict) Text() string {
	return [...]string{Reject: "rejected", Drop: "dropped", Forward: "served", Pass: "untouched"}[v]
}

// Text describes the cause in a sentence.
func (c Cause) Text() string {
	return [...]string{
		NoEndpoints:      "the Service has no endpoint that can be used",
		NoLocalEndpoints: "the Service has endpoints, but none on this node",
		SourceRanges:     "loadBalancerSourceRanges does not admit the client",
		NoSuchPort:       "there is no such port",
		UnusedAddress:    "no Service has this address",
		HasEndpoint:      "the Service has an endpoint for it",
		NotAService:      "no Service has this address and port",
		NoIPv6:           "IPv6 is switched off on this node",
		NodePortsOnly:    "only node ports of TCP and UDP are served, because of --sandbox",
	}[c]
}

// Text describes the verdict and its cause.
func (r Refusal) Text() string { return r.Verdict.Text() + ": " + r.Cause.Text() }

// Text names the field.
func (f Field) Text() string {
	return [...]string{
		OwnerField:           "port name",
		KindField:            "kind of address",
		EndpointsField:       "endpoints",
		PolicyField:          "traffic policy",
		OutsideField:         "endpoints for clients from outside",
		AlgorithmField:       "algorithm",
		ProxyField:           "who connects to endpoints",
		MasqueradeField:      "masquerading",
		AffinityField:        "session affinity",
		SourcesField:         "source ranges",
		DirectField:          "direct return",
		WatchedField:         "ejection",
		EjectedField:         "ejected endpoints",
		ReleasedField:        "another proxy",
		AlsoServingField:     "endpoints that keep connections",
		MasqueradeCauseField: "reason of masquerading",
	}[f]
}

// Text says how many nodes packets are handed to.
func (r *DirectReturn) Text() string {
	if r == nil {
		return "nobody: it is switched off"
	}
	var parts []string
	for _, f := range model.Families {
		if counts := r.Count(f); len(counts) > 0 {
			all := 0
			for _, n := range counts {
				all += n
			}
			parts = append(parts, fmt.Sprintf("%d of %s (%s)", counts[model.PathProven], printable.Count(all, "other node"), f))
		}
	}
	if len(parts) == 0 {
		return "no other node is known"
	}
	return strings.Join(parts, ", ")
}

// Text says which nodes answer clients outside themselves, "" for none.
func (d *Direct) Text() string {
	if d == nil {
		return ""
	}
	by := "address and port"
	if d.ByAddress {
		by = "address"
	}
	nodes := printable.List(d.Nodes, func(n NodeShare) string { return fmt.Sprintf("%s (share %d)", n.Name, n.Share) })
	return fmt.Sprintf("nodes %s answer directly, by the client's %s", nodes, by)
}

// Text describes whose connections are masqueraded.
func (m Masquerade) Text() string {
	return [...]string{
		MasqueradeNever:      "no connection",
		MasqueradeNode:       "the node's own connections",
		MasqueradeOffCluster: "all but connections from pods",
		MasqueradeAlways:     "all connections",
		MasqueradeUnknown:    "not known",
	}[m]
}

// Text describes why a connection is masqueraded, or is not.
func (c MasqueradeCause) Text() string {
	return [...]string{
		PodsNotDetected:       "nothing is configured by which pods are recognised (detectLocalMode)",
		ClientNotPod:          "a client that is not a pod uses a ClusterIP",
		MasqueradeAllSet:      "masqueradeAll is set",
		ExternalPolicyCluster: "externalTrafficPolicy is Cluster, so that replies must come back through this node",
		ExternalPolicyLocal:   "externalTrafficPolicy is Local",
		ClientIsPod:           "the client is a pod",
		ClientIsNode:          "this node itself uses an external address",
		ClientIsEndpoint:      "the client is the endpoint itself",
		ProxyConnects:         "it is the proxy that connects to the endpoint",
		EndpointIsNode:        "the endpoint is this node itself",
		NodeAnswers:           "the node of the endpoint answers the client itself",
		SomeNodesAnswer:       "if the client's node is one that cannot be used for direct return",
		NodeCannotAnswer:      "the client's node cannot be used for direct return",
		MechanismDecides:      "the system decides which address endpoints see",
	}[c]
}

// Choice describes how one of the endpoints is chosen.
func (r *Route) Choice() string {
	by := "evenly"
	if r.Weighted() {
		by = "by weight"
	}
	if name := r.balancedBy(); name != "" {
		return fmt.Sprintf("one that %s chooses (%s)", r.Balancer.Name, name)
	}
	switch r.Algorithm {
	case model.RoundRobin:
		return "one after the other, " + by + " (round-robin)"
	case model.SourceHash, model.Maglev:
		return fmt.Sprintf("one by the client's address, %s (%s)", by, r.Algorithm)
	}
	return "any of them, " + by
}

// AlgorithmText returns the name of the algorithm.
func (r *Route) AlgorithmText() string {
	if name := r.balancedBy(); name != "" {
		return r.Balancer.Name + " " + name
	}
	return r.Algorithm.String()
}

// balancedBy returns how the kernel's balancer chooses, "" if it does not.
func (r *Route) balancedBy() string {
	switch {
	case r.Balancer == nil || r.Balancer.Default == "":
		return ""
	case r.Algorithm == model.Random:
		return r.Balancer.Default
	}
	return r.Algorithm.String()
}

// Text describes by what pods are recognised.
func (d Detector) Text() string {
	switch {
	case d.Interface != "":
		return "interface " + d.Interface
	case d.InterfacePrefix != "":
		return "interfaces named " + d.InterfacePrefix + "*"
	case len(d.Sources) > 0:
		sources := make([]string, len(d.Sources))
		for i, p := range d.Sources {
			sources[i] = p.String()
		}
		return "source addresses in " + strings.Join(sources, ", ")
	}
	return "nothing"
}

// Policy is the field of a Service that decides which endpoints frontends of the
// kind use.
func (k Kind) Policy() string {
	if k == ClusterIP {
		return "internalTrafficPolicy"
	}
	return "externalTrafficPolicy"
}

// Text describes the frontend. Node ports answer on many addresses.
func (f *Frontend) Text() string {
	if f.Kind == NodePort {
		return fmt.Sprintf("%s %d/%s (%s)", f.Kind, f.Key.Port, f.Protocol, f.Family())
	}
	return f.Kind.String() + " " + f.Key.String()
}

// Text describes endpoints that are not in a pool for this reason.
func (r Reason) Text() string {
	return [...]string{
		InPool:          "",
		OtherFamily:     "of a family that the Service has no ClusterIP of",
		MissingPort:     "in a slice without the port",
		BadAddress:      "at an address that no connection can go to",
		NotReady:        "not ready",
		NotServing:      "terminating and no longer serving",
		Duplicate:       "listed more than once, counted once",
		Terminating:     "terminating while others are ready",
		Drained:         "of weight 0",
		HintedElsewhere: "hinted to other nodes or zones",
		NotHere:         "not on this node",
		Ejected:         "left out because it does not answer",
	}[r]
}

// Text describes why an endpoint is not in a pool for a reason, in more detail than
// the reason itself.
func (d *EndpointDecision) Text(why Reason, now time.Time) string {
	switch hints := d.Endpoint.Hints; {
	case why == HintedElsewhere && hints != nil && len(hints.Nodes) > 0:
		return "hinted to node " + strings.Join(hints.Nodes, ", ")
	case why == HintedElsewhere && hints != nil && len(hints.Zones) > 0:
		return "hinted to zone " + strings.Join(hints.Zones, ", ")
	case why == Ejected && d.Ejection != nil:
		return d.Ejection.TextNow(now)
	case why == NotHere && d.Endpoint.Node == "":
		return "in a slice that does not say on which node it is"
	}
	return why.Text()
}
