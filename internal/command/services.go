package command

import (
	"github.com/spf13/pflag"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/telemetry/perservice"
	"sluice/internal/plan"
)

// mostServices is the default limit of Services with metrics of their own: about 4
// series each, and half a kilobyte of memory.
const mostServices = 20_000

// serviceMetrics configures the metrics of single Services.
type serviceMetrics struct {
	on    bool
	limit uint
}

func (m *serviceMetrics) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&m.on, "service-metrics", true,
		"Export metrics of single Services, named sluice_service_.")
	flags.UintVar(&m.limit, "service-metrics-limit", mostServices,
		"How many Services have metrics of their own at most. The others are summed up under the name _other_.")
}

// newCollector returns the collector of metrics of single Services.
func (p *proxy) newCollector() *perservice.Collector {
	return perservice.New(perservice.Options{
		Off:      !p.options.serviceMetrics.on,
		Limit:    int(p.options.serviceMetrics.limit),
		Traffic:  dataplane.TrafficOf(p.dataplane),
		Evidence: p.evidence,
		Refused:  p.history.Refused,
		Verdicts: p.verdicts,
		Answers:  p.upkeep.allAnswers,
		Logger:   p.logger.WithName("metrics"),
		Clock:    p.clock,
	})
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
