package dataplanetest

import (
	"math/rand/v2"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/plan"
)

// Desired returns what plan makes of a random cluster. Adjust is the mode's.
func Desired(rng *rand.Rand, adjust func(*plan.Config)) *plan.Desired {
	return newHistory(rng, adjust).planner.Desired()
}

// history is a random cluster that changes.
type history struct {
	rng      *rand.Rand
	topology randomworld.Topology
	config   plan.Config
	state    *model.State
	planner  *plan.Planner
}

// newHistory returns a random cluster. Adjust is a mode's, and may be nil.
func newHistory(rng *rand.Rand, adjust func(*plan.Config)) *history {
	topology := randomworld.Example()
	world := randomworld.Random(rng, topology)
	if adjust != nil {
		adjust(&world.Config)
	}
	h := &history{rng, topology, world.Config, model.NewState(), plan.New(world.Config)}
	h.apply(world.Events())
	return h
}

func (h *history) apply(events []model.Event) *plan.Change {
	var dirty model.Dirty
	h.state.Apply(&dirty, events...)
	return h.planner.Update(h.state, &dirty)
}

// next makes a random change.
func (h *history) next() *plan.Change {
	return h.apply(randomworld.RandomEvents(h.rng, oracle.FromState(h.config, h.state), h.topology))
}

// end plans the last state from scratch.
func (h *history) end() *plan.Desired {
	fresh := plan.New(h.config)
	fresh.Update(h.state, &model.Dirty{All: true})
	return fresh.Desired()
}
