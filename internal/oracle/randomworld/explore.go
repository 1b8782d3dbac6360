package randomworld

import (
	"math/rand/v2"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// Case is a packet in a random world, and what was planned for that world.
type Case struct {
	Seed    uint64
	World   oracle.World
	Packet  oracle.Packet
	State   *model.State
	Planner *plan.Planner
}

// exploredChanges is the number of changes to each random world.
const exploredChanges = 20

// Explore calls visit with a packet after each of many changes to many random
// worlds.
func Explore(visit func(Case)) {
	topology := Example()
	for seed := range testkit.Extent[uint64](150, 150, 3000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		w := Random(rng, topology)
		w.Config.FrontendsOnly = seed%5 == 0
		w.Config.NoIPv6 = seed%7 == 0
		state, planner := model.NewState(), plan.New(w.Config)
		var dirty model.Dirty
		state.Apply(&dirty, w.Events()...)
		for range exploredChanges {
			events := RandomEvents(rng, w, topology)
			w = w.After(events...)
			state.Apply(&dirty, events...)
			planner.Update(state, &dirty)
			dirty = model.Dirty{}
			visit(Case{seed, w, RandomPacket(rng, w, topology), state, planner})
		}
	}
}
