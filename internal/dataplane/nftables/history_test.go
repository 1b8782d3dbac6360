package nftables

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/plan"
)

var (
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random tests")
	histories = flag.Int("histories", 2000, "random event histories to try")
)

// What the kernel holds depends on the objects there are now, and not on how
// they came to be: a random history of changes, each written as a difference,
// leaves the same as writing the last state into an empty kernel, and both are
// what the kernel reports.
func TestIncrementalIsFromScratchIsKernel(t *testing.T) {
	t.Logf("seed %d (repeat with -seed)", *seed)
	ctx := context.Background()
	incremental, scratch := newKernel(t).dataplane(), newKernel(t).dataplane()
	topology := randomworld.Example()
	commits := 0
	for i := range *histories {
		rng := rand.New(rand.NewPCG(*seed, uint64(i)))
		world := randomworld.Random(rng, topology)
		state, planner := model.NewState(), plan.New(world.Config)
		planner.Update(state, apply(state, world.Events()))
		// What the history before left is adopted.
		ok(t, incremental.Reconcile(ctx, planner.Desired()))
		for range 1 + rng.IntN(6) {
			events := randomworld.RandomEvents(rng, oracle.FromState(world.Config, state), topology)
			ok(t, incremental.Apply(ctx, planner.Update(state, apply(state, events))))
			commits++
		}
		if good, err := incremental.compare(ctx); err != nil || !good {
			t.Fatalf("history %d of seed %d: the mirror is not the kernel: %v", i, *seed, err)
		}

		fresh := plan.New(world.Config)
		fresh.Update(state, everything(state))
		if err := scratch.Cleanup(ctx); err != nil {
			t.Fatal(err)
		}
		ok(t, scratch.Reconcile(ctx, fresh.Desired()))
		if diff := cmp.Diff(scratch.snapshot(t), incremental.snapshot(t)); diff != "" {
			t.Fatalf("history %d of seed %d: from scratch (-) and by increments (+) differ:\n%s", i, *seed, diff)
		}
	}
	t.Logf("%d histories, %d changes", *histories, commits)
}

func apply(s *model.State, events []model.Event) *model.Dirty {
	var d model.Dirty
	s.Apply(&d, events...)
	return &d
}

func everything(s *model.State) *model.Dirty {
	d := &model.Dirty{Node: true, Services: map[model.Name]struct{}{}}
	for n := range s.Services() {
		d.Services[n] = struct{}{}
	}
	return d
}
