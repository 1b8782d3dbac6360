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
	Failed                  // refused by the kernel, to be tried again
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

// FrontendStatus is how far one frontend is on its way into the kernel.
type FrontendStatus struct {
	Phase    Phase
	Removing bool      // what is pending or failed is its removal
	Revision uint64    // of the State that is pending, programmed or failed
	Since    time.Time // when it got into this phase
	// Err is why it failed, or why it is pending for longer: the dataplane as
	// a whole cannot be programmed.
	Err error
	// Attempts counts how often it was refused, Retry is when it is tried
	// again. Both are for failed frontends.
	Attempts int
	Retry    time.Time
}

// Failure is a frontend that failed.
type Failure struct {
	Key plan.Key
	FrontendStatus
}

// Summary is the state of the whole. Times are zero for never.
type Summary struct {
	// Synced tells whether the sources have handed over what there was at the
	// start, WaitingFor names those that have not.
	Synced     bool
	WaitingFor []string

	// DesiredRevision is that of the State that is planned, and
	// ProgrammedRevision of the one that the kernel follows, refused frontends
	// apart.
	DesiredRevision, ProgrammedRevision uint64

	// PendingSince is when the oldest change came that is not in the kernel;
	// zero when there is none. A refused frontend does not count.
	PendingSince time.Time

	// Frontends counts the desired ones, Programmed those that are in the
	// kernel as desired, Pending and Failed those that are not, and those to be
	// removed.
	Frontends, Programmed, Pending, Failed int

	// FailingSince is when the commit failed that no other has made up for; as
	// long as it is not zero the dataplane cannot be programmed. LastError is
	// the last failure of a commit as a whole, also when that is over.
	FailingSince time.Time
	LastError    error

	// WritingSince is when the commit began that is under way, zero for none, and
	// Progress how far it is, from dataplanes that tell.
	WritingSince time.Time
	Progress     dataplane.Progress

	// LastCommit is when the last commit succeeded, LastCommitDuration how
	// long it took.
	LastCommit         time.Time
	LastCommitDuration time.Duration

	// LastVerified is when the kernel was last read and found as programmed.
	LastVerified time.Time

	// SyncPeriod is the one in force.
	SyncPeriod time.Duration

	// Counts since the start: successful commits, those of them that were
	// reconciles, commits that failed as a whole, and what was written.
	Commits, Reconciles, FailedCommits uint64
	Transactions, Elements             uint64
}

// Status is the state of the whole.
func (e *Engine) Status() Summary {
	since := e.inbox.pendingSince()
	s := e.statuses.read()
	s.WaitingFor = e.inbox.waitingFor()
	s.SyncPeriod = time.Duration(e.syncPeriod.Load())
	if s.PendingSince.IsZero() { // what left the inbox is older than what is there
		s.PendingSince = since
	}
	return s
}

// Frontend is the status of one frontend; false when none of that key is
// desired or still in the kernel.
func (e *Engine) Frontend(key plan.Key) (FrontendStatus, bool) {
	return e.statuses.frontend(key)
}

// Failures lists the frontends that failed, by key.
func (e *Engine) Failures() []Failure {
	out := e.statuses.failures()
	slices.SortFunc(out, func(a, b Failure) int { return a.Key.Compare(b.Key) })
	return out
}
