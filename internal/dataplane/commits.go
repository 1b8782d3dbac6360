package dataplane

import (
	"context"
	"errors"
	"iter"
	"sync"

	"sluice/internal/model"
)

var (
	// ErrUnknown is returned by Apply and Repair unless a Reconcile succeeded
	// before, and nothing failed since.
	ErrUnknown = errors.New("what is programmed is not known: reconcile first")
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
	count uint64
	ended chan struct{} // closed when the commit in progress ends; nil if none is
}

// Begin begins a commit. None may be in progress.
func (c *Commits) Begin() { c.Locked(c.begin) }

func (c *Commits) begin() { c.count, c.ended = c.count+1, make(chan struct{}) }

// Turn begins a commit when none is in progress, for modes in which several goroutines change
// the kernel. It fails if ctx is done before.
func (c *Commits) Turn(ctx context.Context) error {
	return c.WhenIdle(ctx, func(uint64) { c.begin() })
}

// End ends it.
func (c *Commits) End() {
	c.Locked(func() {
		close(c.ended)
		c.ended = nil
	})
}

// Locked calls f under the lock.
func (c *Commits) Locked(f func()) {
	c.Lock()
	defer c.Unlock()
	f()
}

// Count returns how many commits began, and whether none is in progress. The
// caller holds the lock.
func (c *Commits) Count() (n uint64, idle bool) { return c.count, c.ended == nil }

// Since reports whether a commit began after the first n. The caller holds the
// lock.
func (c *Commits) Since(n uint64) bool { return c.count != n }

// WhenIdle waits until no commit is in progress, and calls f under the lock with
// the number of those before. The next one waits for f.
func (c *Commits) WhenIdle(ctx context.Context, f func(n uint64)) error {
	for ctx.Err() == nil {
		var ended chan struct{}
		c.Locked(func() {
			if ended = c.ended; ended == nil {
				f(c.count)
			}
		})
		if ended == nil {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-ended:
		}
	}
	return ctx.Err()
}

// Background runs tasks of a Dataplane until stop is called, which waits for them.
func Background(tasks ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, task := range tasks {
		running.Go(func() { task(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// OfFamily yields the values of a family; of returns that of a value.
func OfFamily[T any](family model.Family, of func(T) model.Family, values iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for v := range values {
			if of(v) == family && !yield(v) {
				return
			}
		}
	}
}

// Count returns how many values there are.
func Count[T any](values iter.Seq[T]) (n int) {
	for range values {
		n++
	}
	return n
}
