package telemetry

import (
	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// setDirectReturn sets how many nodes are in each state, if direct return is switched on.
func (m *Metrics) setDirectReturn(r *plan.DirectReturn) {
	m.directNodes.Reset()
	for _, f := range m.families {
		if r == nil {
			return
		}
		counts := r.Count(f)
		for s := range model.NumPathStates {
			m.directNodes.WithLabelValues(f.String(), s.String()).Set(float64(counts[s]))
		}
	}
}

// DirectReturnProbed counts that probes through another node came back, or did not.
func (m *Metrics) DirectReturnProbed(answered bool) {
	result := "lost"
	if answered {
		result = "answered"
	}
	m.directProbes.WithLabelValues(result).Inc()
}

// DirectReturnCounter returns what takes the counters of the kernel, which begin at zero when rules are written
// anew. It is for one goroutine.
func (m *Metrics) DirectReturnCounter() func(dataplane.Handed) {
	var last dataplane.Handed
	return func(now dataplane.Handed) {
		add := func(kind string, before, after uint64) {
			if after < before {
				before = 0
			}
			m.directPackets.WithLabelValues(kind).Add(float64(after - before))
		}
		add("first", last.On, now.On)
		add("fragments", last.Late, now.Late)
		add("second-chance", last.Second, now.Second)
		last = now
	}
}
