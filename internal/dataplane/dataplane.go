package dataplane

import (
	"context"

	"sluice/internal/plan"
)

// Dataplane programs one mechanism of the kernel.
//
// Apply, Reconcile and Repair are called by one goroutine at a time.
// Verify may be called by others at the same time and never delays them for long.
type Dataplane interface {
	// Reconcile reads what is in the kernel, adopts what is right, and mends
	// the difference to desired, in an order in which no connection meets a
	// half-built state. It is the first call, and the way back after a failure.
	Reconcile(ctx context.Context, desired *plan.Desired) Result

	// Apply makes the kernel follow a change against what Reconcile and Apply
	// did so far, with work in proportion to the change.
	Apply(ctx context.Context, change *plan.Change) Result

	// Verify compares the kernel with what Reconcile and Apply left there, and
	// tells whether Repair is needed. It changes nothing.
	Verify(ctx context.Context) (ok bool, err error)

	// Disturbed receives when somebody else may have changed what is ours, so that
	// Repair is needed.
	Disturbed() <-chan struct{}

	// Repair mends what Disturbed and Verify told of, with work in proportion to
	// that. It knows nothing of changes that were not applied yet. If it fails,
	// Reconcile is the way back.
	Repair(ctx context.Context) Result

	// Close lets go of kernel handles and leaves the kernel as it is.
	Close() error
}

// Result is what came of Reconcile or Apply.
type Result struct {
	// Err is set when the work as a whole failed. What the kernel holds is then
	// unknown until a Reconcile succeeds.
	Err error
	// Failed are frontends that the kernel refused. All others are programmed;
	// a refused one is left as it was or absent, and is tried again when it is
	// handed over again.
	Failed map[plan.Key]error
	// Transactions and Elements count what was written.
	Transactions, Elements int
}
