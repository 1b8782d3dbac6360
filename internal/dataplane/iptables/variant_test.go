package iptables

import (
	"context"
	"errors"
	"testing"

	"sluice/internal/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// What the host cannot do is told for each frontend that needs it, and concerns
// no other.
func TestWhatTheHostLacksFailsThoseWhoNeedIt(t *testing.T) {
	d := newFakeDriver().dataplane(t)
	d.features.Recent, d.features.SCTP = false, false
	d.families = []model.Family{model.IPv4}
	r := d.Reconcile(context.Background(), variety())
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	for k, f := range variety().Frontends {
		var want error
		switch {
		case k.Family() == model.IPv6:
			want = errNoFamily
		case f.Affinity > 0:
			want = errNoAffinity
		case k.Protocol == model.SCTP:
			want = errNoSCTP
		}
		if !errors.Is(r.Failed[k], want) {
			t.Errorf("%s: failed with %v, want %v", k, r.Failed[k], want)
		}
	}
}

func TestStatsCountRules(t *testing.T) {
	h := newFakeDriver()
	d := h.dataplane(t)
	ok(t, d.Reconcile(context.Background(), cluster(3, 2)))
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
	d.Apply(context.Background(), &plan.Change{Set: []*plan.Frontend{fourth}})
	if got := d.Stats(); got.PartialRestoreFailures[model.IPv4] == 0 || got.RestoreFailures[model.IPv4] != 0 {
		t.Errorf("failures %v, partial %v", got.RestoreFailures, got.PartialRestoreFailures)
	}
}
