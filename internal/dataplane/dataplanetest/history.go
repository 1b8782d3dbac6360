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
	return NewHistory(rng, adjust).planner.Desired()
}

// History is a random cluster that changes.
type History struct {
	rng      *rand.Rand
	topology randomworld.Topology
	config   plan.Config
	state    *model.State
	planner  *plan.Planner
}

// NewHistory returns a random cluster. Adjust is a mode's, and may be nil.
func NewHistory(rng *rand.Rand, adjust func(*plan.Config)) *History {
	topology := randomworld.Example()
	world := randomworld.Random(rng, topology)
	if adjust != nil {
		adjust(&world.Config)
	}
	h := &History{rng, topology, world.Config, model.NewState(), plan.New(world.Config)}
	h.apply(world.Events())
	return h
}

func (h *History) apply(events []model.Event) *plan.Change {
	var dirty model.Dirty
	h.state.Apply(&dirty, events...)
	return h.planner.Update(h.state, &dirty)
}

// Desired returns what plan makes of it now.
func (h *History) Desired() *plan.Desired { return h.planner.Desired() }

// Next makes a random change.
func (h *History) Next() *plan.Change {
	return h.apply(randomworld.RandomEvents(h.rng, oracle.FromState(h.config, h.state), h.topology))
}

// End plans the last state from scratch.
func (h *History) End() *plan.Desired {
	fresh := plan.New(h.config)
	fresh.Update(h.state, &model.Dirty{All: true})
	return fresh.Desired()
}
