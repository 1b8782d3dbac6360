package history

import (
	"slices"
	"time"

	"sluice/internal/engine"
)

const (
	maxCommits  = 60 // that are kept
	maxServices = 3  // that each names
)

// Commit is a commit that changed something. The names of its fields in JSON are an
// interface and never change.
type Commit struct {
	At       time.Time `json:"at"`
	Revision uint64    `json:"revision"`
	// Services are some of those that the change was about.
	Services []string `json:"services,omitempty"`
	// More is how many other Services it was about.
	More     int `json:"moreServices,omitempty"`
	Set      int `json:"set"`     // frontends
	Removed  int `json:"removed"` // frontends
	Failed   int `json:"failed"`  // frontends
	Elements int `json:"elements"`
	// Took is the duration of the commit, and Latency the time from the first event
	// to its end, in seconds.
	Took    float64 `json:"tookSeconds"`
	Latency float64 `json:"latencySeconds"`
}

// addCommit adds a commit, unless it changed nothing in the kernel.
func (h *History) addCommit(c *engine.Commit, services []*service) {
	if c.Change.Empty() {
		return
	}
	took, latency := durations(c)
	now := Commit{
		At: c.End, Revision: c.Change.Revision,
		Set: len(c.Change.Set), Removed: len(c.Change.Removed), Failed: len(c.Result.Failed), Elements: c.Result.Elements,
		Took: took, Latency: latency,
	}
	for _, s := range services[:min(len(services), maxServices)] {
		now.Services = append(now.Services, s.name.String())
	}
	now.More = len(services) - len(now.Services)
	if len(h.commits) == maxCommits {
		h.commits = slices.Delete(h.commits, 0, 1)
	}
	h.commits = append(h.commits, now)
}

// durations returns how long the kernel took, and how long it was since the first event,
// in seconds.
func durations(c *engine.Commit) (took, latency float64) {
	if since := c.Events.Since; !since.IsZero() {
		latency = max(0, c.End.Sub(since).Seconds())
	}
	return c.Duration().Seconds(), latency
}
