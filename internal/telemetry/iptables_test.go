package telemetry

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics"

	"sluice/internal/dataplane/iptables"
	"sluice/internal/model"
)

func TestIPTablesModeTellsWhatItsDataplaneCounts(t *testing.T) {
	counted := true
	stats := iptables.Stats{
		Rules:                  map[iptables.Table]int{{Family: model.IPv4, Name: "nat"}: 12, {Family: model.IPv6, Name: "filter"}: 3},
		Written:                map[iptables.Table]int{{Family: model.IPv4, Name: "nat"}: 2},
		RestoreFailures:        map[model.Family]uint64{model.IPv4: 4},
		PartialRestoreFailures: map[model.Family]uint64{model.IPv6: 5},
	}
	registry := metrics.NewKubeRegistry()
	err := RegisterIPTables(registry, IPTablesOptions{
		Families:          model.Families[:],
		Stats:             func() iptables.Stats { return stats },
		InvalidDropped:    func(context.Context) (uint64, bool) { return 7, counted },
		LocalhostAccepted: func() uint64 { return 9 },
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"kubeproxy_sync_proxy_rules_iptables_total":                          {"IPv4 filter 0", "IPv4 nat 12", "IPv6 filter 3", "IPv6 nat 0"},
		"kubeproxy_sync_proxy_rules_iptables_last":                           {"IPv4 filter 0", "IPv4 nat 2", "IPv6 filter 0", "IPv6 nat 0"},
		"kubeproxy_sync_proxy_rules_iptables_restore_failures_total":         {"IPv4 4", "IPv6 0"},
		"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total": {"IPv4 0", "IPv6 5"},
		"kubeproxy_iptables_ct_state_invalid_dropped_packets_total":          {"7"},
		"kubeproxy_iptables_localhost_nodeports_accepted_packets_total":      {"9"},
	}
	comparePinned(t, "testdata/metrics-iptables.txt", registry)
	for name, want := range want {
		if diff := cmp.Diff(want, values(t, registry, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	counted = false
	if got := values(t, registry, "kubeproxy_iptables_ct_state_invalid_dropped_packets_total"); len(got) != 0 {
		t.Errorf("a counter that the kernel does not have is shown as %v", got)
	}
}
