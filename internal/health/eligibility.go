package health

import (
	"sync/atomic"

	"sluice/internal/model"
)

// Eligibility knows whether load balancers should still send new connections to
// this node. It listens to what the sources tell the engine.
//
// A node is eligible until the contrary is known: while its Node object has not
// been seen, nobody has marked it for removal.
type Eligibility struct {
	seen    atomic.Bool
	leaving atomic.Pointer[string]
}

// Watch returns a sink that hands everything on and notes what is said of the
// Node.
func (e *Eligibility) Watch(sink model.Sink) model.Sink { return watch{sink, e} }

// Leaving is why no new connections should come; "" if they should.
func (e *Eligibility) Leaving() string {
	if reason := e.leaving.Load(); reason != nil {
		return *reason
	}
	return ""
}

func (e *Eligibility) note(node *model.Node) {
	switch {
	case node != nil:
		e.seen.Store(true)
		e.leaving.Store(&node.Leaving)
	case e.seen.Load():
		reason := "the Node object was deleted"
		e.leaving.Store(&reason)
	}
}

type watch struct {
	model.Sink
	eligibility *Eligibility
}

func (w watch) Update(events ...model.Event) {
	for _, event := range events {
		if set, ok := event.(model.SetNode); ok {
			w.eligibility.note(set.Node)
		}
	}
	w.Sink.Update(events...)
}
