package telemetry

import (
	"sluice/internal/engine"
	"sluice/internal/model"
)

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
