package dataplane

import (
	"context"
	"maps"
	"slices"

	"sluice/internal/plan"
)

// LogElements is the verbosity at which modes log every element or rule that they write.
const LogElements = 6

// Dataplane programs one mechanism of the kernel.
//
// Apply, Reconcile and Repair are called by one goroutine at a time.
// Verify may be called concurrently and never delays them for long.
type Dataplane interface {
	// Reconcile reads what is in the kernel, keeps what is right, and changes
	// the rest to desired, in an order in which no connection meets a
	// half-built state. It is the first call, and the recovery from a failure.
	Reconcile(ctx context.Context, desired *plan.Desired) Result

	// Apply applies a change to what Reconcile and Apply have programmed so
	// far. Its work is proportional to the change.
	Apply(ctx context.Context, change *plan.Change) Result

	// Verify compares the kernel with what was programmed, and reports whether
	// they agree; if not, Repair is needed. It changes nothing.
	Verify(ctx context.Context) (ok bool, err error)

	// Disturbed returns a channel that receives when another process may have
	// changed our rules, so that Repair is needed.
	Disturbed() <-chan struct{}

	// Repair undoes foreign changes that Disturbed and Verify detected, with
	// work proportional to them. It does not include changes that were not
	// applied yet. If it fails, Reconcile is the recovery.
	Repair(ctx context.Context) Result

	// Close releases kernel handles and leaves the kernel as it is.
	Close() error
}

// ApplyWhole calls Apply until nothing is left.
func ApplyWhole(ctx context.Context, d Dataplane, change *plan.Change) Result {
	whole := d.Apply(ctx, change)
	for r := whole; r.Err == nil && len(r.Left) > 0; {
		done := func(k plan.Key) bool {
			_, left := r.Left[k]
			return !left
		}
		rest := &plan.Change{Revision: change.Revision,
			Set:     slices.DeleteFunc(slices.Clone(change.Set), func(f *plan.Frontend) bool { return done(f.Key) }),
			Removed: slices.DeleteFunc(slices.Clone(change.Removed), done),
		}
		r = d.Apply(ctx, rest)
		whole.Err, whole.Left = r.Err, r.Left
		whole.Transactions += r.Transactions
		whole.Elements += r.Elements
		if len(r.Failed) > 0 && whole.Failed == nil {
			whole.Failed = map[plan.Key]error{}
		}
		maps.Copy(whole.Failed, r.Failed)
	}
	return whole
}

// Result is the result of Reconcile, Apply or Repair.
type Result struct {
	// Err is set when the operation as a whole failed. What the kernel holds is
	// then unknown until a Reconcile succeeds.
	Err error
	// Failed are frontends that the kernel refused. All others are programmed;
	// a refused one is unchanged or absent, and is tried again when it is
	// passed again.
	Failed map[plan.Key]error
	// Left are frontends of a change that Apply has only begun to write, because they
	// take long: until they are passed again they work as before, or with some of
	// their endpoints.
	Left map[plan.Key]struct{}
	// Unread says that Reconcile put off reading a large part of what an earlier process left.
	// Changes can be applied; Verify compares that part, and Repair writes what differs.
	Unread bool
	// Transactions and Elements count what was written.
	Transactions, Elements int
}
