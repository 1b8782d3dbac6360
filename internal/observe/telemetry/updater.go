package telemetry

import (
	"cmp"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// Engine is the part of engine.Engine that is read for metrics and Events.
type Engine interface {
	engine.Inspector
	Status() engine.Summary
	Failures() []engine.Failure
}

// UpdaterOptions configures a Updater.
type UpdaterOptions struct {
	Metrics *Metrics
	Engine  Engine
	// Connected reports whether the API server answers; nil without one.
	Connected func() bool
	// Verdict judges the proxy; nil if nobody does.
	Verdict func() verdict.ProxyWord
	// Advisories counts what the administrator should know; nil for none.
	Advisories func() map[Topic]int
	Clock      clock.PassiveClock // nil for the real one
}

// Updater updates metrics as the engine works.
type Updater struct {
	UpdaterOptions
	started time.Time

	mu       sync.Mutex // never held across I/O
	gaps     localGaps
	lastSync time.Time
	// Events that came in, and those of them that are in the kernel.
	received, programmed engine.Events
	counted              engine.Summary // the engine's counts that are in the metrics
}

// NewUpdater returns an Updater that starts with zeros.
func NewUpdater(o UpdaterOptions) *Updater {
	o.Clock = cmp.Or[clock.PassiveClock](o.Clock, clock.RealClock{})
	u := &Updater{UpdaterOptions: o, started: o.Clock.Now(), gaps: newLocalGaps(o.Metrics.families)}
	// Rates need the zero before the first failure.
	m := o.Metrics
	for _, family := range m.families {
		for _, c := range []*metrics.CounterVec{m.syncFailures, m.cleanupFailures, m.conntrackDeleted} {
			c.WithLabelValues(family.String()).Add(0)
		}
	}
	for _, c := range []*metrics.CounterVec{m.conntrackPasses, m.conntrackFailures, m.conntrackSeen} {
		c.WithLabelValues().Add(0)
	}
	u.gaps.publish(m.noLocalEndpoints)
	u.publishChanges(engine.Events{})
	return u
}

// Committed counts a commit.
func (u *Updater) Committed(c *engine.Commit) {
	change := c.Change
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.Kind != engine.None {
		u.observeCommit(c)
	}
	u.observeTriggers(c.Events.Triggers, c.End)
	if since := c.Events.Since; !since.IsZero() && !change.Empty() {
		u.Metrics.programming.WithLabelValues().Observe(max(0, c.End.Sub(since).Seconds()))
	}
	u.programmed.Services += c.Events.Services
	u.programmed.Slices += c.Events.Slices
	u.publishChanges(engine.Events{})
	if change.Settings != nil {
		u.Metrics.setDirectReturn(change.Settings.DirectReturn)
	}
	u.gaps.follow(change)
	u.gaps.publish(u.Metrics.noLocalEndpoints)
	u.synced(c.End)
}

// observeCommit counts the duration and the refusals of a commit. A commit programs
// both families, and counts for each that it concerns.
func (u *Updater) observeCommit(c *engine.Commit) {
	m, took := u.Metrics, c.Duration().Seconds()
	concerned := familiesOf(c.Change)
	for _, family := range m.families {
		label := family.String()
		if !c.Full() && !concerned[family] {
			continue
		}
		m.syncDuration.WithLabelValues(label).Observe(took)
		if c.Full() {
			m.fullSyncDuration.WithLabelValues(label).Observe(took)
		} else {
			m.partialSyncDuration.WithLabelValues(label).Observe(took)
		}
	}
	m.transactionElements.WithLabelValues().Observe(float64(c.Result.Elements))
	if len(c.Result.Failed) > 0 {
		u.countRefusals(c)
	}
}

func (u *Updater) countRefusals(c *engine.Commit) {
	removed := make(map[plan.Key]struct{}, len(c.Change.Removed))
	for _, key := range c.Change.Removed {
		removed[key] = struct{}{}
	}
	failed := familySet{}
	for key := range c.Result.Failed {
		if _, ok := removed[key]; ok {
			u.Metrics.cleanupFailures.WithLabelValues(key.Family().String()).Inc()
		} else {
			failed[key.Family()] = true
		}
	}
	for family := range failed {
		u.Metrics.syncFailures.WithLabelValues(family.String()).Inc()
	}
}

// observeTriggers ignores triggers from before the start, and of families that the node
// does not have.
func (u *Updater) observeTriggers(triggers []engine.Trigger, now time.Time) {
	for _, t := range triggers {
		if t.At.After(u.started) && u.Metrics.has(t.Family) {
			u.Metrics.networkProgramming.WithLabelValues(t.Family.String()).Observe(now.Sub(t.At).Seconds())
		}
	}
}

// synced sets when the kernel was known to hold what is desired, of all families.
func (u *Updater) synced(at time.Time) {
	if !at.After(u.lastSync) {
		return
	}
	u.lastSync = at
	for _, family := range u.Metrics.families {
		u.Metrics.lastSync.WithLabelValues(family.String()).Set(seconds(at))
	}
}

type familySet map[model.Family]bool

func familiesOf(c *plan.Change) familySet {
	out := familySet{}
	if c.Settings != nil {
		out[model.IPv4], out[model.IPv6] = true, true
		return out
	}
	for _, frontend := range c.Set {
		out[frontend.Family()] = true
	}
	for _, key := range c.Removed {
		out[key.Family()] = true
	}
	for _, ip := range c.ClusterIPsAdded {
		out[model.FamilyOf(ip)] = true
	}
	for _, ip := range c.ClusterIPsRemoved {
		out[model.FamilyOf(ip)] = true
	}
	return out
}

// seconds is a time as the value of a metric.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// Watch returns a sink that counts events and forwards them. All sources of Services
// and EndpointSlices must be watched, or the pending changes are wrong.
func (u *Updater) Watch(sink model.Sink) model.Sink { return watch{sink, u} }

type watch struct {
	model.Sink
	updater *Updater
}

// Update counts first, so that the engine cannot have programmed the events before.
func (w watch) Update(events ...model.Event) {
	if len(events) > 0 {
		w.updater.queued(events)
	}
	w.Sink.Update(events...)
}

func (u *Updater) queued(events []model.Event) {
	var came engine.Events
	concerned := familySet{}
	for _, event := range events {
		came.Count(event)
		if set, ok := event.(model.SetSlice); ok {
			concerned[set.Family] = true
		} else {
			concerned[model.IPv4], concerned[model.IPv6] = true, true
		}
	}
	now := seconds(u.Clock.Now())
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, family := range u.Metrics.families {
		if !concerned[family] {
			continue
		}
		u.Metrics.lastQueued.WithLabelValues(family.String()).Set(now)
	}
	u.received.Services += came.Services
	u.received.Slices += came.Slices
	u.publishChanges(came)
}

// publishChanges adds changes that came in, and sets those that are pending.
func (u *Updater) publishChanges(came engine.Events) {
	m := u.Metrics
	m.serviceChanges.WithLabelValues().Add(float64(came.Services))
	m.endpointChanges.WithLabelValues().Add(float64(came.Slices))
	m.serviceChangesPending.WithLabelValues().Set(float64(max(0, u.received.Services-u.programmed.Services)))
	m.endpointChangesPending.WithLabelValues().Set(float64(max(0, u.received.Slices-u.programmed.Slices)))
}

// Refresh updates the metrics that are read from the engine. It is called before each
// scrape.
func (u *Updater) Refresh() {
	status, problems, invalid := u.Engine.Status(), 0, 0
	var fallbacks map[string]int
	u.Engine.Inspect(func(v engine.View) {
		problems, invalid = len(v.Desired.Problems), len(v.Desired.Invalid)
		fallbacks = v.Desired.DirectFallbacks()
	})
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
	for _, metric := range []*metrics.GaugeVec{u.Metrics.invalid, u.Metrics.refused} {
		metric.WithLabelValues().Set(float64(invalid))
	}
	u.Metrics.setAdvisories(advisories)
	u.Metrics.setDirectFallbacks(fallbacks)
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
