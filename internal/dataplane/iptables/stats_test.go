//go:build linux

package iptables

import (
	"strings"
	"testing"

	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// counts are the metrics of IPv4, with the table if they have one.
func counts(t *testing.T, d *Dataplane) map[string]int {
	out := map[string]int{}
	d.Count(t.Context(), []model.Family{model.IPv4}, func(metric string, value float64, labels ...string) {
		out[strings.Join(append([]string{metric}, labels...), " ")] = int(value)
	})
	return out
}

func TestStatsCountRules(t *testing.T) {
	h := newFakeDriver()
	d := h.dataplane(t)
	ok(t, d.Reconcile(t.Context(), cluster(3, 2)))
	n := 0
	for _, rules := range h.tables[iptables.Table{Family: model.IPv4, Name: nat}].chains {
		n += len(rules)
	}
	got := counts(t, d)
	if total, last := got[rulesTotal+" nat IPv4"], got[rulesLast+" nat IPv4"]; total != n || last != n-len(hooksOf(nat)) {
		t.Errorf("%d rules, %d written, want %d and %d: %v", total, last, n, n-len(hooksOf(nat)), got)
	}
	h.refuse = func(string) string { return "no" }
	fourth := cluster(4, 2).Frontends[key("10.96.0.4:80", model.TCP)]
	d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{fourth}})
	got = counts(t, d)
	if failures, ok := got[restoreFailures+" IPv4"]; failures != 0 || !ok || got[partialRestoreFailures+" IPv4"] == 0 {
		t.Errorf("got %v", got)
	}
}
