package nftables

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/oracle/randomworld"
)

var (
	seed      = randomworld.SeedFlag()
	histories = flag.Int("histories", 2000, "random event histories to try")
)

// What the kernel holds depends on the objects there are now, and not on how
// they came to be: a random history of changes, each written as a difference,
// leaves the same as writing the last state into an empty kernel, and both are
// what the kernel reports.
func TestIncrementalIsFromScratchIsKernel(t *testing.T) {
	t.Logf("seed %d (repeat with -seed)", *seed)
	ctx := context.Background()
	ks := newKernel(t)
	incremental, scratch := newKernel(t).dataplane(), ks.dataplane()
	changes := 0
	for i := range *histories {
		rng := rand.New(rand.NewPCG(*seed, uint64(i)))
		changes += dataplanetest.Follow(t, rng, 6, incremental, scratch, ks.remove)
		if found, err := incremental.differs(ctx); err != nil || !found.empty() {
			t.Fatalf("history %d of seed %d: the mirror is not the kernel: %v, %v", i, *seed, found, err)
		}
		if diff := cmp.Diff(scratch.snapshot(t), incremental.snapshot(t)); diff != "" {
			t.Fatalf("history %d of seed %d: from scratch (-) and by increments (+) differ:\n%s", i, *seed, diff)
		}
	}
	t.Logf("%d histories, %d changes", *histories, changes)
}
