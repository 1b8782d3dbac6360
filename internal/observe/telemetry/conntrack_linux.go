package telemetry

import (
	"sluice/internal/model"
	"sluice/internal/observe/conntrack"
)

// OnPass is for conntrack.Options. A pass covers both families.
func (u *Updater) OnPass(p conntrack.Pass) {
	m := u.Metrics
	for _, family := range m.families {
		m.conntrackDuration.WithLabelValues(family.String()).Observe(p.Duration.Seconds())
	}
	m.conntrackDeleted.WithLabelValues(model.IPv4.String()).Add(float64(p.Deleted - p.DeletedIPv6))
	if m.has(model.IPv6) {
		m.conntrackDeleted.WithLabelValues(model.IPv6.String()).Add(float64(p.DeletedIPv6))
	}
	m.conntrackPasses.WithLabelValues().Inc()
	m.conntrackSeen.WithLabelValues().Add(float64(p.Seen))
	if p.Err != nil {
		m.conntrackFailures.WithLabelValues().Inc()
	}
}
