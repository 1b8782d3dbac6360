package telemetry

import (
	"fmt"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/metrics"
)

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
