package engine

import (
	"slices"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
)

// Phase is how far a frontend is on its way into the kernel.
type Phase uint8

// The phases.
const (
	Pending    Phase = iota // planned, not yet in the kernel
	Programmed              // in the kernel as desired
	Failed                  // refused by the kernel, to be retried
)

func (p Phase) String() string {
	switch p {
	case Pending:
		return "pending"
	case Programmed:
		return "programmed"
	case Failed:
		return "failed"
	}
	return "unknown"
}

// FrontendStatus is the status of one frontend.
type FrontendStatus struct {
	Phase    Phase
	Removing bool   // what is pending or failed is its removal
	Revision uint64 // of the State that is pending, programmed or failed
	// Before is what a pending one replaces, nil for none.
	Before *plan.Frontend
	Since  time.Time // when it got into this phase
	// Err is why it failed, or why it is still pending: the dataplane as a
	// whole cannot be programmed.
	Err error
	// Attempts counts how often it was refused, Retry is the time of the next
	// try. Both are for failed frontends.
	Attempts int
	Retry    time.Time
}

// Failure is a frontend that failed.
type Failure struct {
	Key plan.Key
	FrontendStatus
}

// Summary is the status of the engine as a whole. Times are zero for never.
type Summary struct {
	// Synced says whether the sources have passed on everything that existed at
	// the start, WaitingFor names those that have not.
	Synced     bool
	WaitingFor []string

	// DesiredRevision is that of the planned State, and ProgrammedRevision that
	// of the State in the kernel, except for refused frontends.
	DesiredRevision, ProgrammedRevision uint64

	// PendingSince is when the oldest change arrived that is not in the kernel;
	// zero if there is none. Refused frontends do not count.
	PendingSince time.Time

	// Frontends counts the desired ones, Programmed those that are in the
	// kernel as desired, and Pending and Failed those that are not, including
	// removals.
	Frontends, Programmed, Pending, Failed int

	// FailingSince is when commits began to fail as a whole; zero if the last
	// one succeeded. LastError is the last such failure, even if it is over.
	FailingSince time.Time
	LastError    error

	// WritingSince is when the commit in progress began, zero for none, and
	// Progress its progress, if the dataplane reports it.
	WritingSince time.Time
	Progress     dataplane.Progress

	// LastCommit is when the last commit succeeded, LastCommitDuration how long
	// it took.
	LastCommit         time.Time
	LastCommitDuration time.Duration

	// LastVerified is when the kernel was last read and found as programmed.
	LastVerified time.Time

	// System is what is programmed. Where other comments say the kernel, they mean it.
	System plan.System

	// SyncPeriod is the current setting.
	SyncPeriod time.Duration

	// Counts since the start: successful commits, those of them that were
	// reconciles or repairs, commits that failed as a whole, and what was
	// written.
	Commits, Reconciles, FailedCommits uint64
	Transactions, Elements             uint64
}

// Behind reports whether the kernel has not followed for too long: a change has been pending,
// or programming has failed, for longer than two sync periods, as with upstream. Shorter
// failures, from which the engine recovers by itself, do not count.
func (s *Summary) Behind(now time.Time) bool {
	for _, since := range []time.Time{s.PendingSince, s.FailingSince} {
		if !since.IsZero() && now.Sub(since) > s.Limit() {
			return true
		}
	}
	return false
}

// Limit is how long the kernel may lag behind.
func (s *Summary) Limit() time.Duration { return 2 * s.SyncPeriod }

// Status returns the status of the engine as a whole.
func (e *Engine) Status() Summary {
	since := e.inbox.pendingSince()
	s := e.statuses.read()
	s.WaitingFor = e.inbox.waitingFor()
	s.System = e.system
	s.SyncPeriod = time.Duration(e.syncPeriod.Load())
	if s.PendingSince.IsZero() { // changes that left the inbox are older than those in it
		s.PendingSince = since
	}
	return s
}

// Frontend returns the status of one frontend; false if none of that key is
// desired or still in the kernel.
func (e *Engine) Frontend(key plan.Key) (FrontendStatus, bool) {
	return e.statuses.frontend(key)
}

// Unsettled returns the status of a frontend that is pending or failed, and whether it is: any other one is
// in the kernel as it is desired.
func (e *Engine) Unsettled(key plan.Key) (s FrontendStatus, is bool) {
	return e.statuses.unsettled(key)
}

// Settled reports whether all frontends are in the kernel as they are desired, and no other ones.
func (e *Engine) Settled() bool { return e.statuses.settled() }

// Failures returns the frontends that failed, sorted by key.
func (e *Engine) Failures() []Failure {
	out := e.statuses.failures()
	slices.SortFunc(out, func(a, b Failure) int { return a.Key.Compare(b.Key) })
	return out
}
