package telemetry

import (
	"sluice/internal/engine"
	"sluice/internal/model"
)

// Watch returns a sink that hands everything on and counts it. All sources of
// Services and EndpointSlices are watched, or what is pending is told wrong.
func (f *Feed) Watch(sink model.Sink) model.Sink { return watch{sink, f} }

type watch struct {
	model.Sink
	feed *Feed
}

// Update counts before the engine can have programmed what it counts.
func (w watch) Update(events ...model.Event) {
	if len(events) > 0 {
		w.feed.queued(events)
	}
	w.Sink.Update(events...)
}

func (f *Feed) queued(events []model.Event) {
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
	now := seconds(f.Clock.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, family := range f.Metrics.families {
		if !concerned[family] {
			continue
		}
		f.Metrics.lastQueued.WithLabelValues(family.String()).Set(now)
	}
	f.received.Services += came.Services
	f.received.Slices += came.Slices
	f.publishChanges(came)
}

// publishChanges tells of changes that came in, and of those not programmed.
func (f *Feed) publishChanges(came engine.Events) {
	m := f.Metrics
	m.serviceChanges.WithLabelValues().Add(float64(came.Services))
	m.endpointChanges.WithLabelValues().Add(float64(came.Slices))
	m.serviceChangesPending.WithLabelValues().Set(float64(max(0, f.received.Services-f.programmed.Services)))
	m.endpointChangesPending.WithLabelValues().Set(float64(max(0, f.received.Slices-f.programmed.Slices)))
}
