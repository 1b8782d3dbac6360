package telemetry

import (
	"k8s.io/component-base/metrics"

	"sluice/internal/engine"
	"sluice/internal/observe/verdict"
)

// Refresh updates the metrics that are read from the engine. It is called before each
// scrape.
func (u *Updater) Refresh() {
	status, problems, refused := u.Engine.Status(), 0, 0
	u.Engine.Inspect(func(v engine.View) { problems, refused = len(v.Desired.Problems), len(v.Desired.Refused) })
	var advisories map[Topic]int
	if u.Advisories != nil {
		advisories = u.Advisories()
	}
	var word verdict.ProxyWord
	if u.Verdict != nil {
		word = u.Verdict()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.Metrics.setVerdict(word)
	u.Metrics.problems.WithLabelValues().Set(float64(problems))
	u.Metrics.refused.WithLabelValues().Set(float64(refused))
	u.Metrics.setAdvisories(advisories)
	if u.Connected != nil {
		connected := 0.0
		if u.Connected() {
			connected = 1
		}
		u.Metrics.connected.WithLabelValues().Set(connected)
	}
	for phase, count := range map[engine.Phase]int{
		engine.Programmed: status.Programmed, engine.Pending: status.Pending, engine.Failed: status.Failed,
	} {
		u.Metrics.frontends.WithLabelValues(phase.String()).Set(float64(count))
	}
	if status.PendingSince.IsZero() {
		u.synced(status.LastVerified)
	}
	u.countCommits(status)
}

func (u *Updater) countCommits(now engine.Summary) {
	m, before := u.Metrics, u.counted
	if now.Commits+now.FailedCommits < before.Commits+before.FailedCommits {
		return // another scrape overtook this one
	}
	u.counted = now
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

func (m *Metrics) setVerdict(now verdict.ProxyWord) {
	for _, word := range verdict.ProxyWords {
		value := 0.0
		if word == now {
			value = 1
		}
		m.verdict.WithLabelValues(string(word)).Set(value)
	}
}
