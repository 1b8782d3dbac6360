package telemetry

import (
	"k8s.io/component-base/metrics"

	"sluice/internal/engine"
)

// Refresh takes in what has to be asked for. It comes before each scrape.
func (f *Feed) Refresh() {
	status, problems, refused := f.Engine.Status(), 0, 0
	f.Engine.Inspect(func(v engine.View) { problems, refused = len(v.Desired.Problems), len(v.Desired.Refused) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Metrics.problems.WithLabelValues().Set(float64(problems))
	f.Metrics.refused.WithLabelValues().Set(float64(refused))
	if f.Connected != nil {
		connected := 0.0
		if f.Connected() {
			connected = 1
		}
		f.Metrics.connected.WithLabelValues().Set(connected)
	}
	for phase, count := range map[engine.Phase]int{
		engine.Programmed: status.Programmed, engine.Pending: status.Pending, engine.Failed: status.Failed,
	} {
		f.Metrics.frontends.WithLabelValues(phase.String()).Set(float64(count))
	}
	if status.PendingSince.IsZero() {
		f.synced(status.LastVerified)
	}
	f.countCommits(status)
}

func (f *Feed) countCommits(now engine.Summary) {
	m, before := f.Metrics, f.counted
	if now.Commits+now.FailedCommits < before.Commits+before.FailedCommits {
		return // another scrape overtook this one
	}
	f.counted = now
	add(m.commits, now.Reconciles-before.Reconciles, kindReconcile)
	add(m.commits, (now.Commits-now.Reconciles)-(before.Commits-before.Reconciles), kindApply)
	failures := now.FailedCommits - before.FailedCommits
	add(m.commitFailures, failures)
	for _, family := range m.families {
		add(m.syncFailures, failures, family.String())
	}
}

func add(c *metrics.CounterVec, by uint64, labels ...string) {
	c.WithLabelValues(labels...).Add(float64(by))
}
