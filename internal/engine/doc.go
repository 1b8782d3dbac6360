// Package engine is the loop between the sources and the dataplane. It takes
// events, keeps the State, asks plan what changes, hands the change to the
// dataplane, tries again what failed, and knows the status of every frontend.
//
// What it promises:
//
//   - Nothing is written before all sources are in sync. The first write is a
//     Reconcile, which adopts what an earlier process left.
//   - A change goes at once. Events that arrive while a commit is under way
//     gather and go together in the next one. Only a MinSyncPeriod delays.
//   - A frontend that the kernel refuses is tried again with a back-off of its
//     own, and at once when it changes; all others go on.
//   - When a commit fails as a whole, the kernel is reconciled with a back-off
//     of 100 ms to 30 s. Events that arrive meanwhile are planned and included.
//     They shorten the wait to 3 s after the last try, never below the
//     back-off's own step, so that a busy cluster cannot make the loop spin.
//   - What somebody else broke is repaired: at once when the dataplane notices,
//     though at most once a second, and otherwise within a SyncPeriod.
//   - No lock is held while the kernel is spoken to, and none for long: handing
//     over events and reading the status never wait for a commit.
//
// One goroutine, that of Run, owns the State and the Planner and is the only
// one to write to the dataplane. When Run ends, the kernel stays as it is.
package engine
