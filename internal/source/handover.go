package source

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/model"
)

// HandoverTime is how long a Service stays that another proxy serves from now on: upstream's
// collects changes for a second, and then writes rules for all Services. As long as both serve it,
// both lead to the same endpoints. A health check node port only one of them can have: it is
// given up at once.
const HandoverTime = 10 * time.Second

// Handover returns a sink for the events of a proxy with a name. A Service that it served, and that
// another proxy serves now, leaves the next sink after a while. One that was deleted leaves it at
// once.
func Handover(next model.Sink, c clock.WithDelayedExecution, after time.Duration) model.Sink {
	return &handover{next: next, clock: c, after: after, served: map[model.Name]*held{}}
}

type handover struct {
	next  model.Sink
	clock clock.WithDelayedExecution
	after time.Duration

	mu     sync.Mutex
	served map[model.Name]*held // what the next sink has
}

// held is a Service that the next sink has.
type held struct {
	*model.Service
	released bool
}

func (h *handover) Synced() { h.next.Synced() }

func (h *handover) Update(events ...model.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]model.Event, 0, len(events))
	for _, e := range events {
		switch e := e.(type) {
		case model.SetService:
			h.served[e.Name] = &held{Service: e.Service}
		case model.DeleteService:
			if _, served := h.served[e.Name]; !served {
				continue
			}
			delete(h.served, e.Name)
		case model.ReleaseService:
			if released, served := h.release(e.Name); served {
				out = append(out, released)
			}
			continue
		}
		out = append(out, e)
	}
	if len(out) > 0 {
		h.next.Update(out...)
	}
}

// release has a Service leave later, if it is served, and returns what becomes of it until then.
func (h *handover) release(name model.Name) (e model.SetService, served bool) {
	one, served := h.served[name]
	if !served || one.released {
		return e, false
	}
	one.released = true
	h.clock.AfterFunc(h.after, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.served[name] == one { // it was not taken back since
			delete(h.served, name)
			h.next.Update(model.DeleteService{Name: name})
		}
	})
	released := *one.Service
	released.Released, released.HealthCheckNodePort = true, 0
	return model.SetService{Service: &released}, true
}
