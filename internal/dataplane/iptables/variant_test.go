package iptables

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"

	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestVariantIsThatOfTheHost(t *testing.T) {
	const hint = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n"
	const canary = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
	const rules = "*filter\n-A INPUT -j ACCEPT\n-A INPUT -j ACCEPT\nCOMMIT\n"
	// What iptables is without a suffix decides when nothing else does.
	unnamed := &programs{save: map[model.Family]string{}, restore: map[model.Family]string{}}
	if err := unnamed.find(""); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name        string
		nft, legacy string
		want        Variant
	}{
		{"nothing there", "", "", unnamed.versionVariant(context.Background())},
		{"kubelet uses nft", hint, rules, NFT},
		{"kubelet uses legacy", rules, hint, Legacy},
		{"older kubelet uses legacy", rules, canary, Legacy},
		{"others use legacy", "", rules, Legacy},
		{"others use nft", rules, "", NFT},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newKernel(t, AutoVariant)
			for program, text := range map[string]string{"iptables-nft-restore": tc.nft, "ip6tables-legacy-restore": tc.legacy} {
				if text != "" {
					k.run(text, program, "--noflush")
				}
			}
			d, err := New(Options{Logger: logr.Discard(), NetNS: k.ns.FD()})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.Check(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := d.prepare(context.Background()); err != nil {
				t.Fatal(err)
			}
			if d.Variant() != tc.want {
				t.Errorf("chose %s, want %s", d.Variant(), tc.want)
			}
		})
	}
}

// What the host cannot do is told for each frontend that needs it, and concerns
// no other.
func TestWhatTheHostLacksFailsThoseWhoNeedIt(t *testing.T) {
	d := newFakeHost().dataplane(t)
	d.features.affinity, d.features.sctp = false, false
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
	h := newFakeHost()
	d := h.dataplane(t)
	ok(t, d.Reconcile(context.Background(), cluster(3, 2)))
	stats := d.Stats()
	at := Table{model.IPv4, nat}
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
