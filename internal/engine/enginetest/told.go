package enginetest

import (
	"maps"
	"slices"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Told is what an observer was told of. It completes commits that a test makes by hand.
type Told map[plan.Key]*plan.Frontend

// Complete returns a commit with what an engine adds: what was before, and the frontends of
// Services.
func (t Told) Complete(commit *engine.Commit) *engine.Commit {
	change := *commit.Change
	change.Before = map[plan.Key]*plan.Frontend{}
	replace := func(key plan.Key, now *plan.Frontend) {
		if was := t[key]; was != nil {
			change.Before[key] = was
		}
		if t[key] = now; now == nil {
			delete(t, key)
		}
	}
	for _, f := range slices.Concat(change.Set, change.Serving) {
		replace(f.Key, f)
	}
	for _, key := range change.Removed {
		replace(key, nil)
	}
	c := *commit
	c.Change, c.Frontends = &change, t.Of
	if c.Desired == nil {
		c.Desired = &plan.Desired{Frontends: t}
	}
	return &c
}

// Of returns the frontends of a Service.
func (t Told) Of(service model.Name) []*plan.Frontend {
	return slices.SortedFunc(func(yield func(*plan.Frontend) bool) {
		for f := range maps.Values(t) {
			if f.Service == service && !yield(f) {
				return
			}
		}
	}, func(a, b *plan.Frontend) int { return a.Key.Compare(b.Key) })
}
