package plan

import (
	"fmt"
	"slices"

	"sluice/internal/model"
)

// ejects reports whether endpoints of a Service that do not answer are left out for a while.
func (env *environment) ejects(svc *model.Service) bool {
	if svc.Eject != nil {
		return env.canEject && *svc.Eject
	}
	return env.canEject && env.eject
}

// ejected returns those of the Service's endpoints that are left out, as far as they can be.
func (d *draft) ejected(all []model.Ejection) []model.Ejection {
	if !d.env.ejects(d.service) {
		return nil
	}
	return all
}

// checkEject reports a wish that the mode cannot fulfil.
func (d *draft) checkEject() {
	if d.env.canEject || d.service.Eject == nil || !*d.service.Eject {
		return
	}
	d.problemOnce(model.Problem{
		Field:  "metadata.annotations[sluice/eject]",
		Reason: "endpoints that do not answer are not left out in the proxy mode of this node",
		Remedy: "remove the annotation sluice/eject, or choose another proxy mode",
	})
}

// watch has the mode notice which endpoints do not answer, and reports if too many do not to leave
// them out.
func (d *draft) watch(port *model.ServicePort, pools *pools) {
	if !d.env.ejects(d.service) {
		return
	}
	pools.watched = true
	if pools.allStay {
		d.problemOnce(model.Problem{
			Reason: fmt.Sprintf("more than half of the endpoints of port %s do not answer: that may be the network or this node, and all of them get connections", portText(port)),
			Remedy: "see whether this node reaches the nodes of the endpoints",
		})
	}
}

// markEjected marks the candidates that are not answered.
func (cs *candidates) markEjected(p model.Protocol) {
	for i := range cs.ejected {
		e := &cs.ejected[i]
		if e.Protocol != p {
			continue
		}
		at := candidateAt(e.Endpoint.Addr(), e.Endpoint.Port())
		n, _ := slices.BinarySearchFunc(cs.found, at, func(a, b candidate) int {
			if a.sameEndpoint(b) {
				return 0
			}
			return a.compare(b)
		})
		if n < len(cs.found) && cs.found[n].sameEndpoint(at) {
			cs.found[n].failing, cs.found[n].ejected = true, !e.OnTrial
			// A client that keeps its socket would send there for ever; what is refused has no flows to keep.
			cs.found[n].serving = cs.found[n].serving && (e.OnTrial || p != model.UDP)
		}
	}
}

// tooManyFail reports whether more than half of a pool does not answer, or all of it. Then it is not the
// endpoints that fail, and to leave them out would only overload the others.
func (cs *candidates) tooManyFail(why func(*candidate) Reason) bool {
	if len(cs.ejected) == 0 {
		return false
	}
	all, failing := 0, 0
	for i := range cs.found {
		if c := &cs.found[i]; why(c) == InPool || why(c) == Ejected {
			all++
			if c.failing {
				failing++
			}
		}
	}
	return 2*failing > all
}
