//go:build linux

package iptables

import (
	"context"
	"testing"

	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// With nft a large pool is replaced in parts, each of which is written fast; with legacy, where
// that would take longer, at once.
func TestLargePoolChangesInParts(t *testing.T) {
	const endpoints = 4_000
	for _, variant := range []iptables.Variant{iptables.NFT, iptables.Legacy} {
		t.Run(variant.String(), func(t *testing.T) {
			ctx := context.Background()
			h := newFakeDriver()
			d := h.dataplane(t)
			d.used = variant
			before, after := cluster(1, endpoints), cluster(1, 2*endpoints)
			service := key("10.96.0.1:80", model.TCP)
			replaced := *after.Frontends[service]
			replaced.Route.Endpoints = replaced.Route.Endpoints[endpoints:]
			ok(t, d.Reconcile(ctx, before))
			change, parts, most := &plan.Change{Set: []*plan.Frontend{&replaced}}, 0, 0
			for left := true; left; parts++ {
				r := ok(t, d.Apply(ctx, change))
				most, left = max(most, r.Elements), len(r.Left) > 0
				if n := len(d.programmed(service).Route.Endpoints); n < endpoints-portion || n > endpoints+portion {
					t.Errorf("it has %d endpoints after %d parts", n, parts)
				}
			}
			t.Logf("%d parts of at most %d rules", parts, most)
			if several := variant == iptables.NFT; several != (parts > 1) || several && most > 4*portion {
				t.Errorf("%d parts of at most %d rules", parts, most)
			}
			if got := d.programmed(service); got != &replaced {
				t.Errorf("it is not as desired at the end: %v", got)
			}
		})
	}
}

// What cannot be programmed is refused once, and not begun again and again.
func TestRefusedPoolIsNotLeft(t *testing.T) {
	d := newFakeDriver().dataplane(t)
	d.features.Recent = false
	ok(t, d.Reconcile(t.Context(), cluster(1, 1)))
	large := *cluster(1, 4*portion).Frontends[key("10.96.0.1:80", model.TCP)]
	large.Affinity = 60
	r := d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{&large}})
	if len(r.Failed) != 1 || len(r.Left) != 0 {
		t.Errorf("refused: %v, left: %v", r.Failed, r.Left)
	}
}

// A table of legacy is written as a whole, and so not more often than makes sense.
func TestPortionsOfALegacyTableAreFew(t *testing.T) {
	d := newFakeDriver().dataplane(t)
	for _, services := range []int{10, 10_000} {
		desired := cluster(services, 2)
		ok(t, d.Reconcile(t.Context(), desired))
		for variant, want := range map[iptables.Variant]int{iptables.NFT: portion, iptables.Legacy: max(portion, 3*services/wholeTable)} {
			d.used = variant
			if got := d.Portion(); got < want || got > 2*want {
				t.Errorf("%d Services, %s: portions of %d elements, want about %d", services, variant, got, want)
			}
		}
	}
}
