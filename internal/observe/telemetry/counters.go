package telemetry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // adds metrics of the API client to the process's

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

// RegisterBuild registers the build info metric that all Kubernetes components have.
func RegisterBuild(r Registry, info version.Info) error {
	build := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "kubernetes_build_info",
		Help:           "Always 1. The labels say what this proxy was built from, how, and for which platform.",
		StabilityLevel: metrics.BETA,
	}, []string{"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"})
	if err := r.Register(build); err != nil {
		return fmt.Errorf("register metrics of the build: %w", err)
	}
	build.WithLabelValues(info.Major, info.Minor, info.GitVersion, info.GitCommit, info.GitTreeState,
		info.BuildDate, info.GoVersion, info.Compiler, info.Platform).Set(1)
	return nil
}

// Registry is the part of metrics.KubeRegistry that is used here.
type Registry interface {
	Register(metrics.Registerable) error
	CustomRegister(metrics.StableCollector) error
	metrics.Gatherer
}

// processRegistry is the global registry of the process, which has the metrics of
// every Kubernetes component already.
type processRegistry struct{ metrics.Gatherer }

// ProcessRegistry returns the registry with the metrics of every Kubernetes
// component: of the process, the Go runtime and the API client.
func ProcessRegistry() Registry { return processRegistry{legacyregistry.DefaultGatherer} }

func (processRegistry) Register(m metrics.Registerable) error { return legacyregistry.Register(m) }

func (processRegistry) CustomRegister(c metrics.StableCollector) error {
	return legacyregistry.CustomRegister(c)
}
