package engine

import (
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Kind is the dataplane method that a commit called.
type Kind uint8

// The kinds of commit.
const (
	None      Kind = iota // nothing had to be written
	Apply                 // only the change was written
	Reconcile             // the kernel was compared with all of Desired
	Repair                // foreign changes were undone
)

// Commit is a successful write to the kernel, or a change for which nothing had
// to be written. Observers share it, and must not modify it.
type Commit struct {
	Kind Kind
	// Change is now in the kernel, except for what Result says failed. It
	// includes changes whose own commit failed. Its Before is what observers were told last,
	// whatever was planned meanwhile. It is empty for a repair.
	Change *plan.Change
	// Planned says that Change contains something new, and not only retries of
	// refused frontends.
	Planned bool
	// Desired is the result of Change and of all that waits. It is live: an observer may read it
	// until Committed returns, and must call Inspect to read it later.
	Desired *plan.Desired
	// Frontends returns those of a Service after Change, whatever waits: what the changes
	// so far add up to. It may be called until Committed returns.
	Frontends func(service model.Name) []*plan.Frontend
	// Begin and End are when the dataplane was called and when it returned.
	Begin, End time.Time
	Result     dataplane.Result
	// Waiting is how many frontends and ClusterIPs are planned and were left for later commits.
	Waiting int
	// Comparing says that a part of what an earlier process left is not compared yet: it may
	// differ from Desired, and is repaired then.
	Comparing bool
	// Events led to Change, and to nothing that still waits.
	Events Events
}

// Full reports whether more than the change was written: until then the kernel
// may have lacked any of our rules.
func (c *Commit) Full() bool { return c.Kind == Reconcile || c.Kind == Repair }

// Duration returns how long the dataplane took.
func (c *Commit) Duration() time.Duration { return c.End.Sub(c.Begin) }

// Observer is notified of commits.
type Observer interface {
	// Committed is called after each commit. The loop waits for it, so it must
	// not block: observers with more work to do record the commit and wake a
	// goroutine of their own.
	Committed(*Commit)
}

// ObserverFunc adapts a function to an Observer.
type ObserverFunc func(*Commit)

// Committed calls f.
func (f ObserverFunc) Committed(c *Commit) { f(c) }

// Observe adds observers, which are notified in this order. All are added
// before the first source starts.
func (e *Engine) Observe(observers ...Observer) { e.observers = append(e.observers, observers...) }
