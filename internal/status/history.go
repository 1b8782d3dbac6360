package status

import (
	"slices"
	"sync"
	"time"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

const (
	maxChanges  = 60 // that are kept
	maxServices = 3  // that each names
)

// Change is a commit that changed something.
type Change struct {
	At       time.Time `json:"at"`
	Revision uint64    `json:"revision"`
	// Services are some of those that the change was about.
	Services []string `json:"services,omitempty"`
	Set      int      `json:"set"`     // frontends
	Removed  int      `json:"removed"` // frontends
	Failed   int      `json:"failed"`  // frontends
	Elements int      `json:"elements"`
	// Took is the duration of the commit, and Latency the time from the first event
	// to its end, in seconds.
	Took    float64 `json:"tookSeconds"`
	Latency float64 `json:"latencySeconds"`
}

// History keeps the last commits. The zero value is ready to use.
type History struct {
	mu      sync.Mutex
	changes []Change // oldest first
}

// Committed adds a commit, unless it changed nothing.
func (h *History) Committed(c *engine.Commit) {
	change := c.Change
	if change.Empty() {
		return
	}
	now := Change{
		At: c.End, Revision: change.Revision, Services: servicesOf(change),
		Set: len(change.Set), Removed: len(change.Removed), Failed: len(c.Result.Failed), Elements: c.Result.Elements,
		Took: c.Duration().Seconds(),
	}
	if since := c.Events.Since; !since.IsZero() {
		now.Latency = c.End.Sub(since).Seconds()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.changes) == maxChanges {
		h.changes = slices.Delete(h.changes, 0, 1)
	}
	h.changes = append(h.changes, now)
}

// Last returns the last changes, the newest first.
func (h *History) Last() []Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Clone(h.changes)
	slices.Reverse(out)
	return out
}

// servicesOf returns the names of the first few Services of a change.
func servicesOf(change *plan.Change) []string {
	var names []string
	var last model.Name
	for _, f := range change.Set {
		if f.Service == last {
			continue
		}
		last = f.Service
		if name := last.String(); !slices.Contains(names, name) {
			if names = append(names, name); len(names) == maxServices {
				break
			}
		}
	}
	return names
}
