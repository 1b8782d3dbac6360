package telemetry

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/iptables"
	"sluice/internal/model"
)

// count is a dataplane.Counter.
type count func(families []model.Family, add func(string, float64, ...string))

func (c count) Count(_ context.Context, families []model.Family, add func(string, float64, ...string)) {
	c(families, add)
}

func TestDataplaneCounters(t *testing.T) {
	invalid := true
	registry := metrics.NewKubeRegistry()
	described := []dataplane.Metric{
		{Name: "rules", Help: "Rules.", Labels: []string{"table", "ip_family"}},
		{Name: "failures_total", Help: "Failures.", Labels: []string{"ip_family"}, Counter: true},
		{Name: "invalid_total", Help: "Invalid packets.", Counter: true},
	}
	err := RegisterCounters(registry, described, model.Families[:], count(func(families []model.Family, add func(string, float64, ...string)) {
		for i, f := range families {
			add("rules", float64(12+i), "nat", f.String())
			add("failures_total", float64(i), f.String())
		}
		if invalid {
			add("invalid_total", 7)
		}
		add("not_described", 1)
	}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"rules": {"IPv4 nat 12", "IPv6 nat 13"}, "failures_total": {"IPv4 0", "IPv6 1"}, "invalid_total": {"7"}, "not_described": {},
	} {
		if diff := cmp.Diff(want, values(t, registry, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	invalid = false
	if got := values(t, registry, "invalid_total"); len(got) != 0 {
		t.Errorf("a counter that the dataplane does not have is shown as %v", got)
	}
}

// The names are upstream's.
func TestIPTablesMetricNames(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	d := iptables.New(iptables.Options{})
	defer d.Close()
	all := count(func(families []model.Family, add func(string, float64, ...string)) {
		d.Count(t.Context(), families, add)
		add("kubeproxy_iptables_ct_state_invalid_dropped_packets_total", 0) // the kernel may not have it
	})
	if err := RegisterCounters(registry, iptables.Mode.Counters, model.Families[:], all); err != nil {
		t.Fatal(err)
	}
	comparePinned(t, "testdata/metrics-iptables.txt", registry)
}
