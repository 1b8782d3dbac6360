package proxy

import (
	"slices"
	"testing"

	componentconfig "k8s.io/component-base/config/v1alpha1"

	"sluice/internal/config"
	"sluice/internal/plan"
	"sluice/internal/source/kubernetes"
)

// Requests that the API server forwards come by its name.
func TestPageAcceptsHostsOfNodeAndAPIServer(t *testing.T) {
	client, err := kubernetes.NewClient(componentconfig.ClientConnectionConfiguration{}, "https://api.example:6443", "test")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{settings: &config.Settings{Plan: plan.Config{NodeName: "node1"}}, client: client}
	for _, want := range []string{"node1", "api.example"} {
		if got := p.hosts(); !slices.Contains(got, want) {
			t.Errorf("the names are %q, without %q", got, want)
		}
	}
}
