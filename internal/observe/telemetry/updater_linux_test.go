package telemetry

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/conntrack"
	"sluice/internal/plan"
)

// at is the sample of a family at a time of the morning.
func at(family string, d time.Duration) string {
	return fmt.Sprintf("%s %v", family, seconds(morning.Add(d)))
}

func TestCommitCountsForItsFamilies(t *testing.T) {
	v4, v6 := frontend("10.96.0.1", web), frontend("fd00::1", web)
	tests := []struct {
		name   string
		change *plan.Change
		want   []string
	}{
		{"IPv4 is set", set(v4), []string{"IPv4 1 of 2"}},
		{"IPv6 is removed", removed("fd00::1"), []string{"IPv6 1 of 2"}},
		{"both are set", set(v4, v6), []string{"IPv4 1 of 2", "IPv6 1 of 2"}},
		{"a ClusterIP comes and one goes", &plan.Change{
			ClusterIPsAdded: []netip.Addr{v4.Addr}, ClusterIPsRemoved: []netip.Addr{v6.Addr},
		}, []string{"IPv4 1 of 2", "IPv6 1 of 2"}},
		{"settings are everybody's", &plan.Change{Settings: &plan.Settings{}}, []string{"IPv4 1 of 2", "IPv6 1 of 2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.commit(2*time.Second, tt.change, dataplane.Result{Elements: 5})
			w.want("kubeproxy_sync_proxy_rules_duration_seconds", tt.want...)
			w.want("kubeproxy_sync_partial_proxy_rules_duration_seconds", tt.want...)
			w.want("kubeproxy_sync_full_proxy_rules_duration_seconds")
			w.want("sluice_transaction_elements", "1 of 5")
		})
	}
}

func TestMetricsOfOneFamily(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	m, err := NewMetrics(registry, nftables.Mode, []model.Family{model.IPv4})
	if err != nil {
		t.Fatal(err)
	}
	clock, w := clocktesting.NewFakeClock(morning), &world{status: engine.Summary{FailedCommits: 1}}
	updater := NewUpdater(UpdaterOptions{Metrics: m, Clock: clock, Engine: w})
	sink := updater.Watch(&sink{})
	sink.Update(model.SetSlice{Slice: &model.Slice{Family: model.IPv6}}, model.SetService{Service: &model.Service{}})
	clock.Step(time.Second)
	w.status.Commits, w.status.Reconciles = 1, 1
	triggers := []engine.Trigger{{At: clock.Now(), Family: model.IPv6}, {At: clock.Now(), Family: model.IPv4}}
	updater.Committed(&engine.Commit{Kind: engine.Reconcile, End: clock.Now(),
		Change: &plan.Change{Settings: &plan.Settings{}}, Events: engine.Events{Triggers: triggers}})
	updater.OnPass(conntrack.Pass{Duration: time.Second, Deleted: 1})
	updater.Refresh()
	m.LoopbackListening(model.IPv4, 1)
	m.LoopbackListening(model.IPv6, 0)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	labelled := 0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() != labelFamily {
					continue
				}
				labelled++
				if label.GetValue() != "IPv4" {
					t.Errorf("%s has a number of %s", family.GetName(), label.GetValue())
				}
			}
		}
	}
	if labelled < 15 {
		t.Errorf("there are %d numbers of IPv4 only: the test has holes", labelled)
	}
}

// TestNodesOfDirectReturn: they are counted by family and state, and not at all where it is switched off.
func TestNodesOfDirectReturn(t *testing.T) {
	w := newWorld(t)
	commit := func(r *plan.DirectReturn) {
		w.committed(time.Second, engine.Commit{Kind: engine.Apply, Change: &plan.Change{Settings: &plan.Settings{DirectReturn: r}}})
	}
	path := func(ip string, s model.PathState) model.Path {
		return model.Path{Addr: netip.MustParseAddr(ip), State: s}
	}
	commit(&plan.DirectReturn{Nodes: []plan.DirectNode{
		{Name: "a", IPv4: path("192.0.2.1", model.PathProven), IPv6: path("2001:db8::1", model.PathFiltered)},
		{Name: "b", IPv4: path("192.0.2.2", model.PathProven)},
		{Name: "here", Self: true, IPv4: path("192.0.2.3", model.PathUnknown)},
	}})
	w.want("sluice_direct_return_nodes", "IPv4 filtered 0", "IPv4 no-mac 0", "IPv4 off-link 0", "IPv4 proven 2", "IPv4 silent 0", "IPv4 unknown 0",
		"IPv6 filtered 1", "IPv6 no-mac 0", "IPv6 off-link 0", "IPv6 proven 0", "IPv6 silent 0", "IPv6 unknown 0")
	commit(nil)
	w.want("sluice_direct_return_nodes")
}

// TestCountsOfDirectReturn: packets are counted by kind, and connections by the node that they came from. Nodes without
// any have no series, nor have those that are gone, and of very many nodes the last ones share one.
func TestCountsOfDirectReturn(t *testing.T) {
	w := newWorld(t)
	count := w.metrics.DirectReturnCounter()
	count(dataplane.Handed{On: 10, Second: 2, From: map[string]uint64{"n2": 10, "n3": 5, "n4": 0}})
	count(dataplane.Handed{On: 5, Late: 1, From: map[string]uint64{"n2": 5, "n3": 0, "n4": 0}})
	w.want("sluice_direct_return_packets_total", "first 15", "fragments 1", "second-chance 2")
	w.want("sluice_direct_return_received_connections_total", "n2 15", "n3 5")
	count(dataplane.Handed{From: map[string]uint64{"n3": 1, "n4": 0}})
	w.want("sluice_direct_return_received_connections_total", "n3 6")
	many := map[string]uint64{}
	for i := range maxReceivedNodes + 10 {
		many[fmt.Sprintf("n%d", 100+i)] = 2
	}
	count(dataplane.Handed{From: many})
	count(dataplane.Handed{From: many})
	series := w.values("sluice_direct_return_received_connections_total")
	if len(series) != maxReceivedNodes+1 || series[0] != "_other_ 40" || series[1] != "n100 4" {
		t.Errorf("of very many nodes there is %q", series)
	}
	w.metrics.DirectReturnProbed(true)
	w.metrics.DirectReturnProbed(false)
	w.want("sluice_direct_return_probes_total", "answered 1", "lost 1")
}

// TestFallbacksOfDirectReturn: Services that ask for it in vain are counted by why, each once.
func TestFallbacksOfDirectReturn(t *testing.T) {
	w := newWorld(t)
	w.want("sluice_direct_return_fallbacks")
	of := func(code string) model.Problem { return model.Problem{Code: code} }
	w.desired.Problems[model.ServiceObject(web)] = []model.Problem{of("direct-return-sctp"), of(""), of("direct-return-unknown-node"), of("direct-return-unknown-node")}
	w.desired.Problems[model.ServiceObject(model.Name{Name: "other"})] = []model.Problem{of("direct-return-sctp")}
	w.want("sluice_direct_return_fallbacks", "sctp 2", "unknown-node 1")
	clear(w.desired.Problems)
	w.want("sluice_direct_return_fallbacks")
}

func TestReconcileIsAFullSync(t *testing.T) {
	w := newWorld(t)
	w.reconcile(3*time.Second, &plan.Change{})
	w.want("kubeproxy_sync_proxy_rules_duration_seconds", "IPv4 1 of 3", "IPv6 1 of 3")
	w.want("kubeproxy_sync_full_proxy_rules_duration_seconds", "IPv4 1 of 3", "IPv6 1 of 3")
	w.want("kubeproxy_sync_partial_proxy_rules_duration_seconds")
	w.want("sluice_commits_total", "apply 0", "reconcile 1")
}

func TestEmptyChangeIsNoCommit(t *testing.T) {
	w := newWorld(t)
	w.clock.Step(time.Second)
	w.committed(0, engine.Commit{Kind: engine.None, Change: &plan.Change{}})
	w.want("kubeproxy_sync_proxy_rules_duration_seconds")
	w.want("sluice_transaction_elements")
	w.want("kubeproxy_sync_proxy_rules_last_timestamp_seconds", at("IPv4", time.Second), at("IPv6", time.Second))
}

func TestScrapeBetweenCommitAndReport(t *testing.T) {
	w := newWorld(t)
	w.status.Commits = 1
	w.want("sluice_commits_total", "apply 1", "reconcile 0")
	w.updater.Committed(&engine.Commit{Kind: engine.Apply, Change: set(frontend("10.96.0.1", web)), Begin: morning.Add(-time.Second), End: morning})
	w.want("kubeproxy_sync_proxy_rules_duration_seconds", "IPv4 1 of 1")
	w.want("sluice_commits_total", "apply 1", "reconcile 0")
}

func TestFailuresAreCountedByFamily(t *testing.T) {
	refused := errors.New("refused")
	w := newWorld(t)
	w.want("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "IPv4 0", "IPv6 0")
	change := set(frontend("10.96.0.1", web), frontend("10.96.0.2", web))
	change.Removed = removed("fd00::1", "10.96.0.3").Removed
	w.commit(time.Second, change, dataplane.Result{Failed: map[plan.Key]error{
		keyOf("10.96.0.1"): refused, keyOf("10.96.0.2"): refused, keyOf("fd00::1"): refused,
	}})
	w.want("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "IPv4 1", "IPv6 0")
	w.want("kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total", "IPv4 0", "IPv6 1")
	w.status.FailedCommits = 2
	w.want("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "IPv4 3", "IPv6 2")
	w.want("sluice_commit_failures_total", "2")
}

func TestNetworkProgrammingStartsAtTheTrigger(t *testing.T) {
	w := newWorld(t)
	w.clock.Step(time.Minute)
	now := w.clock.Now()
	events := engine.Events{Slices: 3, Triggers: []engine.Trigger{
		{Family: model.IPv4, At: now.Add(-2 * time.Second)},
		{Family: model.IPv6, At: now.Add(-3 * time.Second)},
		{Family: model.IPv4, At: morning.Add(-time.Hour)}, // long before we were there
	}}
	w.committed(time.Second, engine.Commit{Kind: engine.Apply, Change: &plan.Change{}, Events: events})
	w.want("kubeproxy_network_programming_duration_seconds", "IPv4 1 of 2", "IPv6 1 of 3")
}

func TestChangesArePendingUntilProgrammed(t *testing.T) {
	w, out := newWorld(t), &sink{}
	in := w.updater.Watch(out)
	w.want("kubeproxy_sync_proxy_rules_service_changes_pending", "0")
	w.clock.Step(time.Second)
	in.Update(model.SetService{Service: &model.Service{Name: web}}, model.DeleteService{Name: mail}, model.SetNode{})
	w.clock.Step(time.Second)
	in.Update(model.SetSlice{Slice: &model.Slice{Service: "web", Family: model.IPv6}})
	in.Update()
	in.Synced()
	if out.events != 4 || !out.synced {
		t.Errorf("the engine got %+v", out)
	}
	w.want("kubeproxy_sync_proxy_rules_service_changes_total", "2")
	w.want("kubeproxy_sync_proxy_rules_service_changes_pending", "2")
	w.want("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "1")
	w.want("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", at("IPv4", time.Second), at("IPv6", 2*time.Second))

	w.committed(time.Second, engine.Commit{Kind: engine.Apply, Change: &plan.Change{}, Events: engine.Events{Services: 2}})
	w.want("kubeproxy_sync_proxy_rules_service_changes_pending", "0")
	w.want("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "1")
	w.committed(time.Second, engine.Commit{Kind: engine.Apply, Change: &plan.Change{}, Events: engine.Events{Slices: 1}})
	w.want("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "0")
	w.want("kubeproxy_sync_proxy_rules_endpoint_changes_total", "1")
}

func TestVerifiedKernelIsASync(t *testing.T) {
	w := newWorld(t)
	w.want("kubeproxy_sync_proxy_rules_last_timestamp_seconds")
	w.commit(time.Second, &plan.Change{}, dataplane.Result{})
	w.want("kubeproxy_sync_proxy_rules_last_timestamp_seconds", at("IPv4", 0), at("IPv6", 0))
	w.status.LastVerified = morning.Add(30 * time.Second)
	w.want("kubeproxy_sync_proxy_rules_last_timestamp_seconds", at("IPv4", 30*time.Second), at("IPv6", 30*time.Second))
	w.status.LastVerified = morning.Add(60 * time.Second)
	w.status.PendingSince = morning.Add(50 * time.Second)
	w.want("kubeproxy_sync_proxy_rules_last_timestamp_seconds", at("IPv4", 30*time.Second), at("IPv6", 30*time.Second))
}

func TestFrontendsAndProblemsOfTheEngine(t *testing.T) {
	w := newWorld(t)
	w.status = engine.Summary{Frontends: 9, Programmed: 6, Pending: 2, Failed: 1}
	w.desired.Problems[model.Object{Kind: "Service", Namespace: "default", Name: "web"}] = []model.Problem{{Reason: "is odd"}, {Reason: "is even"}}
	w.want("sluice_frontends", "failed 1", "pending 2", "programmed 6")
	w.want("sluice_objects_with_problems", "1")
	w.status = engine.Summary{}
	clear(w.desired.Problems)
	w.want("sluice_frontends", "failed 0", "pending 0", "programmed 0")
	w.want("sluice_objects_with_problems", "0")
}

func TestConntrackIsCounted(t *testing.T) {
	w := newWorld(t)
	w.want("kubeproxy_conntrack_reconciler_deleted_entries_total", "IPv4 0", "IPv6 0")
	w.want("sluice_conntrack_passes_total", "0")
	w.updater.OnPass(conntrack.Pass{Duration: time.Second, Seen: 100, Deleted: 3})
	w.updater.OnPass(conntrack.Pass{Duration: 2 * time.Second, Seen: 50, Deleted: 3, DeletedIPv6: 2, Err: errors.New("interrupted")})
	w.want("kubeproxy_conntrack_reconciler_deleted_entries_total", "IPv4 4", "IPv6 2")
	w.want("kubeproxy_conntrack_reconciler_sync_duration_seconds", "IPv4 2 of 3", "IPv6 2 of 3")
	w.want("sluice_conntrack_passes_total", "2")
	w.want("sluice_conntrack_failures_total", "1")
	w.want("sluice_conntrack_entries_seen_total", "150")
}

func TestPortsWithoutLocalEndpoints(t *testing.T) {
	const name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
	named := func(port string) func(*plan.Frontend) { return func(f *plan.Frontend) { f.Port = port } }
	none := []string{"IPv4 external 0", "IPv4 internal 0", "IPv6 external 0", "IPv6 internal 0"}
	tests := []struct {
		name    string
		changes []*plan.Change
		want    []string
	}{
		{"nothing", nil, none},
		{"endpoints elsewhere are none under policy Local", []*plan.Change{set(frontend("10.96.0.1", web, internalGap))},
			[]string{"IPv4 external 0", "IPv4 internal 1", "IPv6 external 0", "IPv6 internal 0"}},
		{"no endpoints at all is another matter", []*plan.Change{set(frontend("10.96.0.1", web))}, none},
		{"dropping for another cause is no gap", []*plan.Change{set(frontend("10.96.0.1", web, func(f *plan.Frontend) {
			f.Route.Empty = plan.Refusal{Verdict: plan.Drop, Cause: plan.NoEndpoints}
		}))}, none},
		{"a port counts once, whatever its addresses", []*plan.Change{set(frontend("192.0.2.1", web, externalGap), frontend("192.0.2.2", web, externalGap))},
			[]string{"IPv4 external 1", "IPv4 internal 0", "IPv6 external 0", "IPv6 internal 0"}},
		{"two ports, two Services and two families are several", []*plan.Change{set(
			frontend("192.0.2.1", web, externalGap), frontend("192.0.2.2", web, externalGap, named("https")),
			frontend("192.0.2.3", mail, externalGap), frontend("2001:db8::1", web, externalGap))},
			[]string{"IPv4 external 3", "IPv4 internal 0", "IPv6 external 1", "IPv6 internal 0"}},
		{"one of two addresses goes", []*plan.Change{
			set(frontend("192.0.2.1", web, externalGap), frontend("192.0.2.2", web, externalGap)), removed("192.0.2.1")},
			[]string{"IPv4 external 1", "IPv4 internal 0", "IPv6 external 0", "IPv6 internal 0"}},
		{"all go", []*plan.Change{
			set(frontend("192.0.2.1", web, externalGap), frontend("192.0.2.2", web, externalGap)), removed("192.0.2.1", "192.0.2.2")}, none},
		{"an endpoint comes here", []*plan.Change{set(frontend("10.96.0.1", web, internalGap)), set(frontend("10.96.0.1", web))}, none},
		{"the same again is the same", []*plan.Change{set(frontend("10.96.0.1", web, internalGap)), set(frontend("10.96.0.1", web, internalGap))},
			[]string{"IPv4 external 0", "IPv4 internal 1", "IPv6 external 0", "IPv6 internal 0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			for _, change := range tt.changes {
				w.commit(time.Second, change, dataplane.Result{})
			}
			w.want(name, tt.want...)
			w.commit(time.Second, removed("10.96.0.1", "192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"), dataplane.Result{})
			w.want(name, none...)
			if left := len(w.updater.gaps.frontends); left != 0 {
				t.Errorf("%d gaps are kept in mind for nothing", left)
			}
		})
	}
}
