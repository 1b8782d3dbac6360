package proxy

import (
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/telemetry/perservice"
	"sluice/internal/plan"
)

// newCollector returns the collector of metrics of single Services.
func (p *proxy) newCollector() *perservice.Collector {
	return perservice.New(perservice.Options{
		Off:      p.settings.Uncounted,
		Limit:    int(p.options.ServiceMetricsLimit),
		Traffic:  p.traffic(),
		Evidence: p.evidence,
		Refused:  p.history.Refused,
		Verdicts: p.verdicts,
		Answers:  p.hostSetup.allAnswers,
		Logger:   p.logger.WithName("metrics"),
		Clock:    p.clock,
	})
}

// traffic is how the dataplane counts connections, nil if it does not.
func (p *proxy) traffic() dataplane.TrafficFunc {
	if p.settings.Uncounted {
		return nil
	}
	return dataplane.TrafficOf(p.dataplane)
}

// evidence returns what Services are planned from, in the order of the names.
func (p *proxy) evidence(names []model.Name) []plan.Evidence {
	out := make([]plan.Evidence, len(names))
	p.engine.Inspect(func(v engine.View) {
		for i, name := range names {
			out[i] = v.Evidence(name)
		}
	})
	return out
}
