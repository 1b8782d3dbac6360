package kubernetes

import (
	"maps"
	"slices"
	"sync"

	"sluice/internal/model"
)

// outlet passes the events of all kinds to the sink, one at a time, and only
// during Run.
type outlet struct {
	complete chan struct{} // closed when the sink is in sync

	mu      sync.Mutex
	sink    model.Sink          // nil before and after Run
	waiting map[string]struct{} // kinds that are not listed yet
}

func newOutlet() *outlet { return &outlet{complete: make(chan struct{})} }

func (o *outlet) open(sink model.Sink, kinds []*kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sink = sink
	o.waiting = make(map[string]struct{}, len(kinds))
	for _, k := range kinds {
		o.waiting[k.name] = struct{}{}
	}
}

func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sink = nil
}

func (o *outlet) update(events []model.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sink != nil && len(events) > 0 {
		o.sink.Update(events...)
	}
}

func (o *outlet) listed(kind string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.waiting[kind]; !ok || o.sink == nil {
		return
	}
	delete(o.waiting, kind)
	if len(o.waiting) == 0 {
		o.sink.Synced()
		close(o.complete)
	}
}

func (o *outlet) waitingFor() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.waiting))
}
