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
	for _, f := range model.Families {
		open := func(a address) bool { return a.kind == LoadBalancerIP && model.FamilyOf(a.Addr) == f }
		if !d.service.Filtered || d.filters(f) || !slices.ContainsFunc(d.addresses, open) {
			continue
		}
		d.problems = append(d.problems, model.Problem{
			Object: model.ServiceObject(d.service.Name),
			Field:  "spec.loadBalancerSourceRanges",
			Reason: fmt.Sprintf("no range is of %s, so that everybody may connect to the load balancer IPs of that family", f),
			Remedy: fmt.Sprintf("add the %s ranges that may connect, %s/0 for everybody", f, unspecified(f)),
		})
	}
}

// report collects the problems of the Service and of its slices.
func (d *draft) report() {
	own := slices.Concat(d.service.Problems, d.problems)
	if local := slices.ContainsFunc(d.slices, d.runs); local || len(own) > 0 {
		d.reports = append(d.reports, report{model.ServiceObject(d.service.Name), own, local})
	}
	for _, s := range d.slices {
		problems := s.Problems
		if p, found := d.sliceProblem(s); found {
			problems = append(slices.Clone(problems), p)
		}
		if len(problems) > 0 {
			d.reports = append(d.reports, report{model.SliceObject(s.Name), problems, d.runs(s)})
		}
	}
}

// runs reports whether an endpoint of a slice runs on this node, in any
// condition.
func (d *draft) runs(s *model.Slice) bool {
	for i := range s.Endpoints {
		if d.env.local(&s.Endpoints[i]) {
			return true
		}
	}
	return false
}

// sliceProblem reports what of a slice is left out. Of many bad addresses it
// names one: they tend to have the same cause.
func (d *draft) sliceProblem(s *model.Slice) (p model.Problem, found bool) {
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
	bad, first := 0, 0
	for i := range s.Endpoints {
		if endpointFault(s.Endpoints[i].Addr, s.Family) == "" {
			continue
		}
		if bad == 0 {
			first = i
		}
		bad++
	}
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
	return taken(f.Service, f.Kind.field(), f.Text(), to.Service, why)
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
