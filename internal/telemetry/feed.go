package telemetry

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"sluice/internal/conntrack"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Engine is what is read of an engine.Engine when metrics are scraped and Events
// recorded.
type Engine interface {
	engine.Inspector
	Status() engine.Summary
	Failures() []engine.Failure
}

// FeedOptions configures a Feed.
type FeedOptions struct {
	Metrics *Metrics
	Engine  Engine
	// Connected says whether the API server can be reached; nil where there is none.
	Connected func() bool
	Clock     clock.PassiveClock // nil for the real one
}

// Feed keeps metrics true to what the engine does.
type Feed struct {
	FeedOptions
	started time.Time

	mu       sync.Mutex // held for moments only
	gaps     localGaps
	lastSync time.Time
	// What came in, and what of it is in the kernel.
	received, programmed engine.Events
	counted              engine.Summary // what of the engine's counts is in the metrics
}

// NewFeed returns a Feed that starts with zeros.
func NewFeed(o FeedOptions) *Feed {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	f := &Feed{FeedOptions: o, started: o.Clock.Now(), gaps: newLocalGaps(o.Metrics.families)}
	// Whoever computes rates needs to see the zero before the first failure.
	m := o.Metrics
	for _, family := range m.families {
		for _, c := range []*metrics.CounterVec{m.syncFailures, m.cleanupFailures, m.conntrackDeleted} {
			c.WithLabelValues(family.String()).Add(0)
		}
	}
	for _, c := range []*metrics.CounterVec{m.conntrackPasses, m.conntrackFailures, m.conntrackSeen} {
		c.WithLabelValues().Add(0)
	}
	f.gaps.publish(m.noLocalEndpoints)
	f.publishChanges(engine.Events{})
	return f
}

// Committed takes in a commit.
func (f *Feed) Committed(c *engine.Commit) {
	change := c.Change
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Kind != engine.None {
		f.observeCommit(c)
	}
	f.observeTriggers(c.Events.Triggers, c.End)
	if since := c.Events.Since; !since.IsZero() && !change.Empty() {
		f.Metrics.programming.WithLabelValues().Observe(max(0, c.End.Sub(since).Seconds()))
	}
	f.programmed.Services += c.Events.Services
	f.programmed.Slices += c.Events.Slices
	f.publishChanges(engine.Events{})
	f.gaps.follow(change)
	f.gaps.publish(f.Metrics.noLocalEndpoints)
	f.synced(c.End)
}

// observeCommit takes in what a commit took and what was refused in it. One
// commit programs both families; it counts for each that it concerns.
func (f *Feed) observeCommit(c *engine.Commit) {
	m, took := f.Metrics, c.Duration().Seconds()
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
		f.countRefusals(c)
	}
}

func (f *Feed) countRefusals(c *engine.Commit) {
	removed := make(map[plan.Key]struct{}, len(c.Change.Removed))
	for _, key := range c.Change.Removed {
		removed[key] = struct{}{}
	}
	failed := familySet{}
	for key := range c.Result.Failed {
		if _, ok := removed[key]; ok {
			f.Metrics.cleanupFailures.WithLabelValues(key.Family().String()).Inc()
		} else {
			failed[key.Family()] = true
		}
	}
	for family := range failed {
		f.Metrics.syncFailures.WithLabelValues(family.String()).Inc()
	}
}

// observeTriggers leaves out what happened before we were there to program it, and
// what is not ours to program.
func (f *Feed) observeTriggers(triggers []engine.Trigger, now time.Time) {
	for _, t := range triggers {
		if t.At.After(f.started) && f.Metrics.has(t.Family) {
			f.Metrics.networkProgramming.WithLabelValues(t.Family.String()).Observe(now.Sub(t.At).Seconds())
		}
	}
}

// synced notes when the kernel was known to hold what is desired, of all
// families.
func (f *Feed) synced(at time.Time) {
	if !at.After(f.lastSync) {
		return
	}
	f.lastSync = at
	for _, family := range f.Metrics.families {
		f.Metrics.lastSync.WithLabelValues(family.String()).Set(seconds(at))
	}
}

// OnPass is for conntrack.Options. A pass goes over the entries of both
// families.
func (f *Feed) OnPass(p conntrack.Pass) {
	m := f.Metrics
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

// familySet is a set of families.
type familySet map[model.Family]bool

// familiesOf are those that a change concerns.
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

// seconds is a time as metrics tell it.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
