package telemetry

import (
	"context"
	"fmt"

	"k8s.io/component-base/metrics"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

// RegisterCounters adds the metrics that a dataplane keeps itself. It is asked for
// them at each scrape.
func RegisterCounters(r Registry, all []dataplane.Metric, families []model.Family, counter dataplane.Counter) error {
	c := &counters{families: families, counter: counter, metrics: map[string]counted{}}
	for _, m := range all {
		kind := metrics.GaugeValue
		if m.Counter {
			kind = metrics.CounterValue
		}
		c.metrics[m.Name] = counted{metrics.NewDesc(m.Name, m.Help, m.Labels, nil, metrics.ALPHA, ""), kind}
	}
	if err := r.CustomRegister(c); err != nil {
		return fmt.Errorf("register the metrics of the mode: %w", err)
	}
	return nil
}

// counters collects the metrics of a dataplane.
type counters struct {
	metrics.BaseStableCollector
	families []model.Family
	counter  dataplane.Counter
	metrics  map[string]counted
}

// counted is a metric of a dataplane.
type counted struct {
	*metrics.Desc
	kind metrics.ValueType
}

// DescribeWithStability implements metrics.StableCollector.
func (c *counters) DescribeWithStability(to chan<- *metrics.Desc) {
	for _, m := range c.metrics {
		to <- m.Desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *counters) CollectWithStability(to chan<- metrics.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countersTimeout)
	defer cancel()
	c.counter.Count(ctx, c.families, func(name string, value float64, labels ...string) {
		if m, ok := c.metrics[name]; ok {
			to <- metrics.NewLazyConstMetric(m.Desc, m.kind, value, labels...)
		}
	})
}
