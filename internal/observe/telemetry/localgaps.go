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
	byKey    map[plan.Key]gap
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
	return localGaps{families: families, byKey: map[plan.Key]gap{}, frontends: map[gap]int{}, ports: map[gapKind]int{}}
}

func (l *localGaps) follow(change *plan.Change) {
	for _, key := range change.Removed {
		l.close(key)
	}
	for _, f := range change.Set {
		l.close(f.Key)
		if policy, open := gapOf(f); open {
			l.open(f.Key, gap{gapKind{policy, f.Family()}, f.Service, f.Port, f.Protocol})
		}
	}
}

// gapOf reports whether a frontend drops for lack of a local endpoint, and under which
// policy.
func gapOf(f *plan.Frontend) (policy string, open bool) {
	if f.Outside != nil {
		return policyExternal, f.Outside.Refuses(plan.NoLocalEndpoints)
	}
	return policyInternal, f.Route.Refuses(plan.NoLocalEndpoints)
}

func (l *localGaps) open(key plan.Key, g gap) {
	l.byKey[key] = g
	l.frontends[g]++
	if l.frontends[g] == 1 {
		l.ports[g.gapKind]++
	}
}

func (l *localGaps) close(key plan.Key) {
	g, open := l.byKey[key]
	if !open {
		return
	}
	delete(l.byKey, key)
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
