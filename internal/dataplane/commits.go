package dataplane

import (
	"context"
	"errors"
	"sync"
	"time"
)

var (
	// ErrUnknown is returned by Apply and Repair unless a Reconcile succeeded
	// before, and nothing failed since.
	ErrUnknown = errors.New("what the kernel holds is not known: reconcile first")
	// ErrReconciling is returned by Describe while the contents of the kernel are
	// unknown.
	ErrReconciling = errors.New("it is being compared with what is desired: ask again")
)

// Commits guards the mirror that a mode keeps of the kernel's contents. One
// goroutine at a time commits: step by step it changes the kernel, and then the
// mirror. Others read the mirror, which agrees with the kernel while no commit is
// in progress.
//
// The lock is for access to the mirror. It is not held while the kernel works.
type Commits struct {
	sync.Mutex
	count      uint64
	inProgress bool
}

// Begin begins a commit.
func (c *Commits) Begin() {
	c.Locked(func() { c.count, c.inProgress = c.count+1, true })
}

// End ends it.
func (c *Commits) End() { c.Locked(func() { c.inProgress = false }) }

// Locked calls f under the lock.
func (c *Commits) Locked(f func()) {
	c.Lock()
	defer c.Unlock()
	f()
}

// Count returns how many commits began, and whether none is in progress. The
// caller holds the lock.
func (c *Commits) Count() (n uint64, idle bool) { return c.count, !c.inProgress }

// Since reports whether a commit began after the first n. The caller holds the
// lock.
func (c *Commits) Since(n uint64) bool { return c.count != n }

// idlePoll is the time between two checks whether a commit has ended.
const idlePoll = 2 * time.Millisecond

// WhenIdle waits until no commit is in progress, and calls f under the lock with
// the number of those before. The next one waits for f.
func (c *Commits) WhenIdle(ctx context.Context, f func(n uint64)) error {
	for ctx.Err() == nil {
		c.Lock()
		if !c.inProgress {
			defer c.Unlock()
			f(c.count)
			return nil
		}
		c.Unlock()
		time.Sleep(idlePoll)
	}
	return ctx.Err()
}
