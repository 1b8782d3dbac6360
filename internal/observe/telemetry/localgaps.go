package telemetry

import (
	"k8s.io/component-base/metrics"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// localGaps counts the service ports that drop connections because of traffic policy
// Local without an endpoint on this node. It keeps only those, so that the cost of a
// change is in proportion to it.
type localGaps struct {
	families []model.Family // to publish
	// frontends counts the frontends of a gap.
	frontends map[gap]int
	ports     map[gapKind]int
}

// gap is a service port without a local endpoint.
type gap struct {
	gapKind
	service  model.Name
	port     string
	protocol model.Protocol
}

type gapKind struct {
	policy string // policyInternal or policyExternal
	family model.Family
}

func newLocalGaps(families []model.Family) localGaps {
	return localGaps{families: families, frontends: map[gap]int{}, ports: map[gapKind]int{}}
}

func (l *localGaps) follow(change *plan.Change) {
	for before, now := range change.Frontends() {
		if g, open := gapOf(before); open {
			l.close(g)
		}
		if g, open := gapOf(now); open {
			l.open(g)
		}
	}
}

// gapOf reports whether a frontend, if there is one, drops for lack of a local endpoint.
func gapOf(f *plan.Frontend) (g gap, open bool) {
	switch {
	case f == nil:
		return g, false
	case f.Outside != nil:
		g.policy, open = policyExternal, f.Outside.Refuses(plan.NoLocalEndpoints)
	default:
		g.policy, open = policyInternal, f.Route.Refuses(plan.NoLocalEndpoints)
	}
	g.family, g.service, g.port, g.protocol = f.Family(), f.Service, f.Port, f.Protocol
	return g, open
}

func (l *localGaps) open(g gap) {
	l.frontends[g]++
	if l.frontends[g] == 1 {
		l.ports[g.gapKind]++
	}
}

func (l *localGaps) close(g gap) {
	l.frontends[g]--
	if l.frontends[g] == 0 {
		delete(l.frontends, g)
		l.ports[g.gapKind]--
	}
}

func (l *localGaps) publish(to *metrics.GaugeVec) {
	for _, policy := range []string{policyInternal, policyExternal} {
		for _, family := range l.families {
			to.WithLabelValues(policy, family.String()).Set(float64(l.ports[gapKind{policy, family}]))
		}
	}
}
