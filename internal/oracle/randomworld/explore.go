package randomworld

import (
	"math/rand/v2"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/plan"
)

// Case is a packet in a random world, and what was planned for that world.
type Case struct {
	Seed    uint64
	World   oracle.World
	Packet  oracle.Packet
	State   *model.State
	Planner *plan.Planner
}

// The numbers of random worlds, and of changes to each.
const (
	exploredWorlds  = 150
	exploredChanges = 20
)

// Explore calls visit with a packet after each of many changes to many random
// worlds.
func Explore(visit func(Case)) {
	topology := Example()
	for seed := range uint64(exploredWorlds) {
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
