//go:build linux

package iptables

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// Very many chains are written and removed in batches. Meanwhile every frontend that
// stays leads to its endpoints.
func TestBatchesKeepTrafficWorking(t *testing.T) {
	testkit.NotInGuest(t, "its kernel is a fake")
	t.Logf("seed %d (repeat with -seed)", *seed)
	ctx := context.Background()
	pieces := 0
	for i := range 1 + manyHistories()/25 {
		rng := rand.New(rand.NewPCG(*seed, uint64(i)))
		h := newFakeDriver()
		d := h.dataplane(t)
		d.batch = 10 + rng.IntN(50)
		crowd := newCrowd(rng)
		ok(t, d.Reconcile(ctx, crowd.desired))
		for range 4 {
			before := maps.Clone(crowd.desired.Frontends)
			change := crowd.change()
			stay := slices.DeleteFunc(crowd.keys(), func(k plan.Key) bool {
				return crowd.desired.Frontends[k] != before[k] || k.NodePort()
			})
			h.writes = 0
			h.onWrite = func() { crowd.checkWaysTo(t, h, stay) }
			if rng.IntN(2) == 0 {
				ok(t, dataplane.ApplyWhole(ctx, d, change))
			} else {
				ok(t, d.Reconcile(ctx, crowd.desired))
			}
			pieces = max(pieces, h.writes)
		}
	}
	if pieces < 10 {
		t.Errorf("there were no more than %d pieces", pieces)
	}
}
