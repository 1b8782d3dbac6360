package dataplanetest

import (
	"math/rand/v2"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/plan"
)

// Desired is what plan makes of a random cluster.
func Desired(rng *rand.Rand) *plan.Desired {
	return newHistory(rng).planner.Desired()
}

// Follow applies a random history of at most so many changes to one dataplane, and
// reconciles another one with its end, after its kernel was emptied. What the history
// before left in the first one's kernel is adopted. It returns how many changes
// there were.
func Follow(t testing.TB, rng *rand.Rand, most int, incremental, scratch dataplane.Dataplane, empty func()) (changes int) {
	t.Helper()
	ctx := t.Context()
	h := newHistory(rng)
	OK(t, incremental.Reconcile(ctx, h.planner.Desired()))
	changes = 1 + rng.IntN(most)
	for range changes {
		OK(t, incremental.Apply(ctx, h.next()))
	}
	empty()
	OK(t, scratch.Reconcile(ctx, h.end()))
	return changes
}

// history is what happens to a random cluster.
type history struct {
	rng      *rand.Rand
	topology randomworld.Topology
	config   plan.Config
	state    *model.State
	planner  *plan.Planner
}

func newHistory(rng *rand.Rand) *history {
	topology := randomworld.Example()
	world := randomworld.Random(rng, topology)
	h := &history{rng, topology, world.Config, model.NewState(), plan.New(world.Config)}
	h.apply(world.Events())
	return h
}

func (h *history) apply(events []model.Event) *plan.Change {
	var dirty model.Dirty
	h.state.Apply(&dirty, events...)
	return h.planner.Update(h.state, &dirty)
}

// next is a random change.
func (h *history) next() *plan.Change {
	return h.apply(randomworld.RandomEvents(h.rng, oracle.FromState(h.config, h.state), h.topology))
}

// end is what somebody desires who sees nothing but the last state.
func (h *history) end() *plan.Desired {
	fresh := plan.New(h.config)
	fresh.Update(h.state, &model.Dirty{All: true})
	return fresh.Desired()
}
