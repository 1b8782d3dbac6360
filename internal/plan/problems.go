package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"sluice/internal/model"
)

// report lists the problems of one object; there may be none.
type report struct {
	object   model.Object
	problems []model.Problem
	local    bool // this node runs an endpoint of the object
}

// field returns the path of the field that frontends of a kind come from.
func (k Kind) field() string {
	return [...]string{"spec.clusterIPs", "status.loadBalancer.ingress", "spec.externalIPs", "spec.ports"}[k]
}

func (d *draft) leaveOut(kind Kind, ip netip.Addr, fault string) {
	d.problems = append(d.problems, model.Problem{
		Object: model.ServiceObject(d.service.Name),
		Field:  kind.field(),
		Reason: fmt.Sprintf("%s %s", ip, fault),
		Remedy: "remove the address or replace it by one that the Service can answer on",
	})
}

func (d *draft) externalIPsOff() model.Problem {
	return model.Problem{
		Object: model.ServiceObject(d.service.Name),
		Field:  ExternalIP.field(),
		Reason: "external IPs are switched off on this node",
		Remedy: "use a Service of type LoadBalancer, or enable the feature gate AllowServiceExternalIPs",
	}
}

func (d *draft) externalIPRefused(ip netip.Addr) model.Problem {
	return model.Problem{
		Object: model.ServiceObject(d.service.Name),
		Field:  ExternalIP.field(),
		Reason: fmt.Sprintf("%s is not in the ranges of external IPs that this node serves", ip),
		Remedy: "use an address in one of them, or have --external-ip-ranges of the proxies extended",
	}
}

func (d *draft) notForwarded(port *model.ServicePort) model.Problem {
	return model.Problem{
		Object: model.ServiceObject(d.service.Name),
		Field:  NodePort.field(),
		Reason: fmt.Sprintf("node port %d/%s is not served: without the kernel's help there are TCP and UDP only", port.NodePort, port.Protocol),
		Remedy: "use a node whose proxy runs without --sandbox",
	}
}

// reportUnfiltered reports families for which the source ranges contain no
// range. An author of 0.0.0.0/0 rarely means to close IPv6, and an author of
// 10.0.0.0/8 rarely means to open it.
func (d *draft) reportUnfiltered() {
	if d.env.limits.NoSourceRanges {
		return // checkLimits says more
	}
	for _, f := range model.Families {
		meant := func(a address) bool {
			return model.FamilyOf(a.Addr) == f && (a.kind == LoadBalancerIP || d.service.FilterAll && a.kind != ClusterIP)
		}
		if !d.service.Filtered || d.filters(LoadBalancerIP, f) ||
			!slices.ContainsFunc(d.addresses, meant) && !slices.ContainsFunc(d.nodePorts, meant) {
			continue
		}
		which := "load balancer IPs"
		if d.service.FilterAll {
			which = "external addresses"
		}
		d.problems = append(d.problems, model.Problem{
			Object: model.ServiceObject(d.service.Name),
			Field:  "spec.loadBalancerSourceRanges",
			Reason: fmt.Sprintf("no range is of %s, so that everybody may connect to the %s of that family", f, which),
			Remedy: fmt.Sprintf("add the %s ranges that may connect, %s/0 for everybody", f, unspecified(f)),
		})
	}
}

// reportRing reports an endpoint that is the node port itself, at an address where the proxy
// accepts connections and opens others to the endpoints.
func (d *draft) reportRing(port *model.ServicePort, endpoints []Endpoint) {
	if port.NodePort == 0 || !ProxyForwards(port.Protocol) {
		return
	}
	i := slices.IndexFunc(endpoints, func(e Endpoint) bool {
		return e.Port() == port.NodePort && slices.Contains(d.env.ownNodePortIPs, e.Addr())
	})
	if i < 0 {
		return
	}
	d.problemOnce(model.Problem{
		Field:  NodePort.field(),
		Reason: fmt.Sprintf("endpoint %s/%s is the node port of the Service itself: connections go round in circles, and are refused in the end", endpoints[i].AddrPort, port.Protocol),
		Remedy: "remove the endpoint from its EndpointSlice, or give it the port that its program listens on",
	})
}

// report collects the problems of the Service and of its slices.
func (d *draft) report() {
	own := slices.Concat(d.service.Problems, d.problems)
	facts := d.sliceFacts()
	if local := slices.ContainsFunc(facts, func(f sliceFacts) bool { return f.runs }); local || len(own) > 0 {
		d.reports = append(d.reports, report{model.ServiceObject(d.service.Name), own, local})
	}
	for i, s := range d.slices {
		problems := s.Problems
		if p, found := d.sliceProblem(s, &facts[i]); found {
			problems = append(slices.Clone(problems), p)
		}
		if len(problems) > 0 {
			d.reports = append(d.reports, report{model.SliceObject(s.Name), problems, facts[i].runs})
		}
	}
}

// sliceFacts returns those of each slice.
func (d *draft) sliceFacts() []sliceFacts {
	d.work.facts = d.work.facts[:0]
	for _, s := range d.slices {
		d.work.facts = append(d.work.facts, d.rosters.factsOf(d.env, s))
	}
	d.rosters.keepFacts(d.env, d.slices, d.work.facts)
	return d.work.facts
}

// sliceProblem reports what of a slice is left out. Of many bad addresses it
// names one: they tend to have the same cause.
func (d *draft) sliceProblem(s *model.Slice, facts *sliceFacts) (p model.Problem, found bool) {
	if !d.env.serves(s.Family) {
		return model.Problem{}, false
	}
	if !d.hasFamily(s.Family) {
		return model.Problem{
			Object: model.SliceObject(s.Name),
			Field:  "addressType",
			Reason: fmt.Sprintf("%s is ignored: Service %s has no ClusterIP of that family", s.Family, d.service.Name),
			Remedy: "delete the slice, or add the family to spec.ipFamilies of the Service",
		}, true
	}
	bad, first := facts.bad, facts.first
	if bad == 0 {
		return model.Problem{}, false
	}
	ip := s.Endpoints[first].Addr
	reason := fmt.Sprintf("%s %s", ip, endpointFault(ip, s.Family))
	if bad > 1 {
		reason += fmt.Sprintf(", and %d more addresses cannot be endpoints", bad-1)
	}
	return model.Problem{
		Object: model.SliceObject(s.Name),
		Field:  "endpoints[" + strconv.Itoa(first) + "].addresses",
		Reason: reason,
		Remedy: "give the endpoint an address that other nodes can reach",
	}, true
}

// lost returns the problem of a Service that lost a frontend to another one.
func lost(f, to *Frontend) model.Problem {
	why := older
	if f.Kind != to.Kind {
		why = fmt.Sprintf("whose %s it is, which outranks the %s of others", to.Kind, f.Kind)
	}
	if f.Key != to.Key {
		return overlapped(f, to, why)
	}
	return taken(f.Service, f.Kind.field(), f.Text(), to.Service, why)
}

// overlapped returns the problem of a range that overlaps that of another Service.
func overlapped(f, to *Frontend, why string) model.Problem {
	return model.Problem{
		Object: model.ServiceObject(f.Service),
		Field:  portsField,
		Reason: fmt.Sprintf("%s is not served: it overlaps %s of Service %s, %s", f.Text(), to.PortText(), to.Service, why),
		Remedy: fmt.Sprintf("choose another range here, or in Service %s", to.Service),
	}
}

// crossed returns the problem of a range in which n single ports or node ports lead elsewhere, a first one among them.
func crossed(f, first *Frontend, n int) model.Problem {
	more, which := "", fmt.Sprintf("belongs to Service %s: a single port", first.Service)
	if first.NodePort() {
		which = fmt.Sprintf("is a node port of Service %s: a node port", first.Service)
	}
	if n > 1 {
		more = fmt.Sprintf(", and %d more of its ports lead elsewhere", n-1)
	}
	return model.Problem{
		Object: model.ServiceObject(f.Service),
		Field:  portsField,
		Reason: fmt.Sprintf("%s is served without port %d, which %s goes before a range%s", f.Text(), first.Key.Port, which, more),
		Remedy: "leave the port out of the range, by two ranges around it",
	}
}

// lostHealthCheck does the same for a health check node port.
func lostHealthCheck(loser model.Name, port uint16, winner model.Name) model.Problem {
	return taken(loser, "spec.healthCheckNodePort", fmt.Sprintf("port %d", port), winner, older)
}

const older = "which is older or, if they are of one age, first by name"

func taken(loser model.Name, field, what string, winner model.Name, why string) model.Problem {
	return model.Problem{
		Object: model.ServiceObject(loser),
		Field:  field,
		Reason: fmt.Sprintf("%s belongs to Service %s, %s", what, winner, why),
		Remedy: fmt.Sprintf("choose another one here, or remove it from Service %s", winner),
	}
}
