package engine

import (
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
)

// Kind is the method of the dataplane that a commit called.
type Kind uint8

// The kinds of commit.
const (
	None      Kind = iota // the change left the kernel nothing to do
	Apply                 // the change alone was written
	Reconcile             // the kernel was compared with all of Desired
	Repair                // what somebody else had changed was restored
)

// Commit is a write to the kernel that succeeded, or a change that left the
// kernel nothing to do. Observers share it, and must not modify it.
type Commit struct {
	Kind Kind
	// Change is now in the kernel, apart from what Result says failed. It includes
	// changes whose own commit failed. It is empty if there was nothing but a repair.
	Change *plan.Change
	// Planned says that Change has something new in it, and not only frontends
	// that were refused and are tried again.
	Planned bool
	// Desired is what Change leads to. It is live: an observer may read it until
	// Committed returns, and must call Inspect to read it later.
	Desired *plan.Desired
	// Begin and End are when the dataplane was called and when it returned.
	Begin, End time.Time
	Result     dataplane.Result
	// Events led to Change.
	Events Events
}

// Full reports whether more than the change was written: until then the kernel may
// have lacked anything that is ours.
func (c *Commit) Full() bool { return c.Kind == Reconcile || c.Kind == Repair }

// Duration is how long the dataplane took.
func (c *Commit) Duration() time.Duration { return c.End.Sub(c.Begin) }

// Observer is notified of commits.
type Observer interface {
	// Committed is called after each commit. The loop waits for it, so it must not
	// block: observers that have work to do take a note and wake a goroutine of
	// their own.
	Committed(*Commit)
}

// ObserverFunc is a function that is an Observer.
type ObserverFunc func(*Commit)

// Committed calls f.
func (f ObserverFunc) Committed(c *Commit) { f(c) }

// Observe adds observers, which are notified in this order. All are added before
// the first source starts.
func (e *Engine) Observe(observers ...Observer) { e.observers = append(e.observers, observers...) }
