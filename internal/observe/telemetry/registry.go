package telemetry

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // adds metrics of the API client to the process's
)

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
