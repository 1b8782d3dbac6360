//go:build linux

package telemetry

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/component-base/metrics"

	"sluice/internal/dataplane/nftables"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// TestMetricsFollowTheEngine checks what Updater assumes of an engine.
func TestMetricsFollowTheEngine(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	m, err := NewMetrics(registry, nftables.Mode, model.Families[:])
	if err != nil {
		t.Fatal(err)
	}
	e := enginetest.New(t, plan.Config{NodeName: "here"})
	updater := NewUpdater(UpdaterOptions{Connected: func() bool { return true }, Metrics: m, Engine: e})
	e.Observe(updater)
	want := func(name string, want ...string) {
		t.Helper()
		testkit.Eventually(t, func() error {
			updater.Refresh()
			if got := values(t, registry, name); !slices.Equal(got, want) {
				return fmt.Errorf("%s is %q, want %q", name, got, want)
			}
			return nil
		})
	}
	e.Start()
	in := updater.Watch(e.Source)
	service := enginetest.Service("default/web", "10.96.0.1", func(s *model.Service) { s.InternalPolicy = model.PolicyLocal })
	in.Update(service, model.SetHostIPs{})
	want("kubeproxy_sync_proxy_rules_service_changes_pending", "1")
	want("sluice_commits_total", "apply 0", "reconcile 0")
	in.Synced()
	want("sluice_commits_total", "apply 0", "reconcile 1")
	want("kubeproxy_sync_proxy_rules_service_changes_pending", "0")
	want("sluice_frontends", "failed 0", "pending 0", "programmed 1")

	e.Dataplane.Set(func(b *enginetest.Behaviour) { b.Err = errors.New("no") })
	slice := enginetest.Slice(service.Service, "10.1.0.1@there")
	slice.Trigger = time.Now().Add(time.Hour)
	in.Update(slice)
	want("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "1")
	want("sluice_frontends", "failed 0", "pending 1", "programmed 0")
	testkit.Eventually(t, func() error {
		updater.Refresh()
		if got := values(t, registry, "sluice_commit_failures_total"); slices.Equal(got, []string{"0"}) {
			return errors.New("the failure is not counted")
		}
		return nil
	})
	e.Dataplane.Set(func(b *enginetest.Behaviour) { b.Err = nil })
	want("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "0")
	want("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "IPv4 external 0", "IPv4 internal 1", "IPv6 external 0", "IPv6 internal 0")
	if got := values(t, registry, "kubeproxy_network_programming_duration_seconds"); len(got) != 1 {
		t.Errorf("programming was measured as %q", got)
	}
}
