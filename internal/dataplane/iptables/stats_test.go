package iptables

import (
	"testing"

	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestStatsCountRules(t *testing.T) {
	h := newFakeDriver()
	d := h.dataplane(t)
	ok(t, d.Reconcile(t.Context(), cluster(3, 2)))
	stats := d.Stats()
	at := iptables.Table{Family: model.IPv4, Name: nat}
	n := 0
	for _, rules := range h.tables[at].chains {
		n += len(rules)
	}
	if stats.Rules[at] != n || stats.Written[at] != n-len(hooksOf(nat)) {
		t.Errorf("%d rules, %d written, want %d and %d", stats.Rules[at], stats.Written[at], n, n-len(hooksOf(nat)))
	}
	h.refuse = func(string) string { return "no" }
	fourth := cluster(4, 2).Frontends[key("10.96.0.4:80", model.TCP)]
	d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{fourth}})
	if got := d.Stats(); got.PartialRestoreFailures[model.IPv4] == 0 || got.RestoreFailures[model.IPv4] != 0 {
		t.Errorf("failures %v, partial %v", got.RestoreFailures, got.PartialRestoreFailures)
	}
}
