package telemetry

import (
	"maps"
	"slices"

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

const (
	// maxReceivedNodes is how many nodes have series of their own of the connections that they hand to this one: every
	// node may hand some to every other one.
	maxReceivedNodes = 50
	otherNodes       = "_other_"
	labelNode        = "node"
)

// DirectReturnCounter returns what takes what was handed on since the last call. It is for one goroutine.
func (m *Metrics) DirectReturnCounter() func(dataplane.Handed) {
	own := map[string]struct{}{} // nodes with series of their own
	return func(h dataplane.Handed) {
		for kind, packets := range map[string]uint64{"first": h.On, "fragments": h.Late, "second-chance": h.Second} {
			m.directPackets.WithLabelValues(kind).Add(float64(packets))
		}
		m.countReceived(h.From, own)
	}
}

// countReceived counts connections by the node that they came from. The series of nodes that are gone end.
func (m *Metrics) countReceived(from map[string]uint64, own map[string]struct{}) {
	for node := range own {
		if _, there := from[node]; !there {
			delete(own, node)
			m.directReceived.Delete(map[string]string{labelNode: node})
		}
	}
	for _, node := range slices.Sorted(maps.Keys(from)) {
		connections := from[node]
		if connections == 0 {
			continue
		}
		if _, has := own[node]; has || len(own) < maxReceivedNodes {
			own[node] = struct{}{}
		} else {
			node = otherNodes
		}
		m.directReceived.WithLabelValues(node).Add(float64(connections))
	}
}

// setDirectFallbacks sets how many Services ask for direct return in vain, by why.
func (m *Metrics) setDirectFallbacks(services map[string]int) {
	m.directFallbacks.Reset()
	for reason, n := range services {
		m.directFallbacks.WithLabelValues(reason).Set(float64(n))
	}
}
