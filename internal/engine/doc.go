// Package engine is the loop between the sources and the dataplane. It receives
// events, maintains the State, plans changes, applies them to the dataplane,
// retries failures, and tracks the status of every frontend.
//
// Guarantees:
//
//   - Nothing is written before all sources are in sync. The first write is a
//     Reconcile, which adopts what an earlier process left.
//   - A change is committed immediately. Events that arrive during a commit are
//     batched into the next one. Only MinSyncPeriod delays commits.
//   - A large change is committed in portions, between which namespaces and Services
//     take turns: it does not delay changes of other Services.
//   - A frontend that the kernel refuses is retried with a backoff of its own, and
//     immediately when it changes; all others are unaffected.
//   - When a commit fails as a whole, the kernel is reconciled with a backoff of
//     100 ms to 30 s. Events that arrive meanwhile are planned and included. They
//     shorten the wait to 3 s after the last try, never below the backoff's own
//     step, so that a busy cluster cannot make the loop spin.
//   - Foreign changes in the kernel are repaired: immediately when the dataplane
//     notices them, though rate-limited, and otherwise within a SyncPeriod.
//   - No lock is held across a system call, and none for long: Update and Status
//     never wait for a commit.
//
// One goroutine, that of Run, owns the State and the Planner and is the only
// one to write to the dataplane. When Run ends, the kernel stays as it is.
package engine
