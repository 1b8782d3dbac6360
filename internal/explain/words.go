package explain

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/printable"
)

// count is "1 endpoint" or "2 endpoints".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// list joins words with commas, and names at most a handful.
func list[T any](all []T, word func(T) string) string {
	const most = 8
	words := make([]string, 0, most+1)
	for i, v := range all {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(all)-most))
			break
		}
		words = append(words, word(v))
	}
	return strings.Join(words, ", ")
}

func prefixList(all []netip.Prefix) string { return list(all, netip.Prefix.String) }

// portWord is "80/TCP (http)".
func portWord(p model.ServicePort) string {
	s := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	if p.Name != "" {
		s += " (" + p.Name + ")"
	}
	return s
}

// nameWord is a port's name, and says so if it has none.
func nameWord(name string) string {
	if name == "" {
		return "without a name"
	}
	return fmt.Sprintf("named %q", name)
}

// Words for what is no decision of plan.
const (
	unknown        = "unknown"         // verdict: it cannot be told
	noSuchService  = "no-such-service" // none of that name is known
	notInSyncCause = "not-in-sync"     // the proxy does not know the cluster yet
)

// verdictWord says what became of a packet, for programs.
func verdictWord(v plan.Verdict) string {
	return [...]string{plan.Reject: "rejected", plan.Drop: "dropped", plan.Forward: "served", plan.Pass: "untouched"}[v]
}

// masqueradeWord says why a connection is masqueraded, or is not.
func masqueradeWord(why plan.MasqueradeCause) string {
	return [...]string{
		plan.PodsNotDetected:       "nothing is configured by which pods are recognised (detectLocalMode)",
		plan.ClientNotPod:          "a client that is not a pod uses a ClusterIP",
		plan.MasqueradeAllSet:      "masqueradeAll is set",
		plan.ExternalPolicyCluster: "externalTrafficPolicy is Cluster, so that replies must come back through this node",
		plan.ExternalPolicyLocal:   "externalTrafficPolicy is Local",
		plan.ClientIsPod:           "the client is a pod",
		plan.ClientIsNode:          "this node itself uses an external address",
		plan.ClientIsEndpoint:      "the client is the endpoint itself",
		plan.ProxyConnects:         "it is the proxy that connects to the endpoint",
	}[why]
}

// kindWord is what people call a kind of frontend.
func kindWord(k plan.Kind) string {
	return [...]string{"ClusterIP", "load balancer IP", "external IP", "node port"}[k]
}

// frontendWord is where a frontend answers, and its kind.
func frontendWord(f *plan.Frontend) string {
	if f.Kind == plan.NodePort {
		return fmt.Sprintf("%d/%s (%s node port)", f.Key.Port, f.Protocol, f.Family())
	}
	return fmt.Sprintf("%s (%s)", f.Key, kindWord(f.Kind))
}

// policyWord is the field that decides about a kind of frontend.
func policyWord(k plan.Kind) string {
	if k == plan.ClusterIP {
		return "internalTrafficPolicy"
	}
	return "externalTrafficPolicy"
}

// fateWord says in words why an endpoint is not in a pool.
func fateWord(why plan.Reason, f *plan.EndpointDecision, port *model.ServicePort) string {
	switch why {
	case plan.OtherFamily:
		return "its slice is of a family that the Service has no ClusterIP of"
	case plan.NoSuchPort:
		return fmt.Sprintf("its slice has no %s port %s", port.Protocol, nameWord(port.Name))
	case plan.BadAddress:
		return "no connection can go to that address"
	case plan.NotReady:
		return "not ready"
	case plan.NotServing:
		return "terminating, and no longer serving"
	case plan.Duplicate:
		return "listed more than once, counts once"
	case plan.Terminating:
		return "terminating, and there are others that are ready"
	case plan.HintedElsewhere:
		return "its hints mean " + hintWord(f.Endpoint.Hints)
	case plan.NotHere:
		if f.Endpoint.Node == "" {
			return "its slice does not say on which node it is"
		}
		return "not on this node"
	}
	return ""
}

func hintWord(h *model.Hints) string {
	switch {
	case h == nil:
		return "nobody"
	case len(h.Nodes) > 0:
		return "node " + strings.Join(h.Nodes, ", ")
	}
	return "zone " + strings.Join(h.Zones, ", ")
}

// ago is how long something has been, in few figures.
func ago(now, then time.Time) string { return printable.Duration(now.Sub(then)) }
