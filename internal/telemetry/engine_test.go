package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/component-base/metrics"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// kernel is a dataplane that takes everything, or nothing.
type kernel struct {
	mu      sync.Mutex
	failing error
}

func (k *kernel) result(elements int) dataplane.Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	return dataplane.Result{Err: k.failing, Elements: elements, Transactions: 1}
}

func (k *kernel) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failing = err
}

func (k *kernel) Reconcile(_ context.Context, d *plan.Desired) dataplane.Result {
	return k.result(len(d.Frontends))
}
func (k *kernel) Apply(_ context.Context, c *plan.Change) dataplane.Result {
	return k.result(len(c.Set) + len(c.Removed))
}
func (k *kernel) Verify(context.Context) (bool, error)    { return true, nil }
func (k *kernel) Repair(context.Context) dataplane.Result { return dataplane.Result{} }
func (k *kernel) Disturbed() <-chan struct{}              { return nil }
func (k *kernel) Close() error                            { return nil }

// TestMetricsFollowTheEngine holds the two together: what Updater takes for
// granted of the engine is so.
func TestMetricsFollowTheEngine(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	m, err := NewMetrics(registry, nftables.Mode, model.Families[:])
	if err != nil {
		t.Fatal(err)
	}
	k := &kernel{}
	eng := engine.New(engine.Options{Planner: plan.New(plan.Config{NodeName: "here"}), Dataplane: k, Logger: logr.Discard()})
	updater := NewUpdater(UpdaterOptions{
		Connected: func() bool { return true },
		Metrics:   m,
		Engine:    eng,
	})
	eng.Observe(updater)
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
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- eng.Run(ctx) }()
	in := updater.Watch(eng)
	service := &model.Service{
		Name: web, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, InternalPolicy: model.PolicyLocal,
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	in.Update(model.SetService{Service: service}, model.SetHostIPs{})
	want("kubeproxy_sync_proxy_rules_service_changes_pending", "1")
	want("sluice_commits_total", "apply 0", "reconcile 0")
	in.Synced()
	want("sluice_commits_total", "apply 0", "reconcile 1")
	want("kubeproxy_sync_proxy_rules_service_changes_pending", "0")
	want("sluice_frontends", "failed 0", "pending 0", "programmed 1")

	k.fail(errors.New("no"))
	in.Update(model.SetSlice{Slice: &model.Slice{
		Name: model.Name{Namespace: "default", Name: "web-1"}, Service: "web", Family: model.IPv4, Trigger: time.Now().Add(time.Hour),
		Ports:     []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
		Endpoints: []model.Endpoint{{Addr: netip.MustParseAddr("10.1.0.1"), Node: "there", Conditions: model.Ready}},
	}})
	want("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "1")
	want("sluice_frontends", "failed 0", "pending 1", "programmed 0")
	testkit.Eventually(t, func() error {
		updater.Refresh()
		if got := values(t, registry, "sluice_commit_failures_total"); slices.Equal(got, []string{"0"}) {
			return errors.New("the failure is not counted")
		}
		return nil
	})
	k.fail(nil)
	want("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "0")
	want("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "IPv4 external 0", "IPv4 internal 1", "IPv6 external 0", "IPv6 internal 0")
	if got := values(t, registry, "kubeproxy_network_programming_duration_seconds"); len(got) != 1 {
		t.Errorf("programming was measured as %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
