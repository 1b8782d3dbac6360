package kubernetes

import (
	"maps"
	"slices"
	"sync"

	"sluice/internal/model"
)

// sinkGate passes the events of all kinds to the sink, one at a time, and only
// during Run.
type sinkGate struct {
	complete chan struct{} // closed when the sink is in sync

	mu      sync.Mutex
	sink    model.Sink          // nil before and after Run
	waiting map[string]struct{} // kinds that are not listed yet
}

func newSinkGate() *sinkGate { return &sinkGate{complete: make(chan struct{})} }

func (g *sinkGate) open(sink model.Sink, kinds []*kind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sink = sink
	g.waiting = make(map[string]struct{}, len(kinds))
	for _, k := range kinds {
		g.waiting[k.name] = struct{}{}
	}
}

func (g *sinkGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sink = nil
}

func (g *sinkGate) update(events []model.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sink != nil && len(events) > 0 {
		g.sink.Update(events...)
	}
}

func (g *sinkGate) listed(kind string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.waiting[kind]; !ok || g.sink == nil {
		return
	}
	delete(g.waiting, kind)
	if len(g.waiting) == 0 {
		g.sink.Synced()
		close(g.complete)
	}
}

func (g *sinkGate) waitingFor() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.waiting))
}
