package engine

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"sluice/internal/backoff"
	"sluice/internal/plan"
)

// mark is a moment in the life of a frontend, small because there is one for
// each.
type mark struct {
	revision uint64
	since    int64 // nanoseconds of Unix time
}

// waiting is a frontend that is planned and not yet in the kernel.
type waiting struct {
	mark
	removing bool
}

// failure is a frontend that the kernel refused.
type failure struct {
	mark
	removing bool
	err      error
	attempts int
	retry    time.Time
}

// statusTable is the status of every frontend. The loop writes it, everybody reads.
type statusTable struct {
	mu              sync.RWMutex
	summary         Summary
	programmed      map[plan.Key]mark
	pending         map[plan.Key]waiting // overrides the other two
	failed          map[plan.Key]failure // overrides programmed
	lastProgressLog time.Time            // when it was last logged how far a commit is
	// nextRetry is a time before which no failed frontend is to be tried
	// again; zero when there is none to try. It may be too early, which costs
	// a look, so that it need not be searched for after each commit.
	nextRetry time.Time
}

// outcome is what a commit changed that is worth telling.
type outcome struct {
	news      []Failure // refused for the first time, or for a new reason
	recovered int       // refused before, and now as desired
}

func newStatusTable() *statusTable {
	return &statusTable{
		programmed: map[plan.Key]mark{},
		pending:    map[plan.Key]waiting{},
		failed:     map[plan.Key]failure{},
	}
}

// queued notes that a change which came at that time is being worked on.
func (l *statusTable) queued(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.Synced = true
	if l.summary.PendingSince.IsZero() || since.Before(l.summary.PendingSince) {
		l.summary.PendingSince = since
	}
}

// planned notes what a change makes pending, and the number of frontends that
// are desired with it.
func (l *statusTable) planned(change *plan.Change, since time.Time, frontends int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.DesiredRevision = change.Revision
	l.summary.Frontends = frontends
	if len(l.pending) == 0 { // growing it bit by bit takes longer
		l.pending = make(map[plan.Key]waiting, len(change.Set))
	}
	for _, f := range change.Set {
		l.wait(f.Key, mark{change.Revision, since.UnixNano()}, false)
	}
	for _, key := range change.Removed {
		l.wait(key, mark{change.Revision, since.UnixNano()}, true)
	}
}

func (l *statusTable) wait(key plan.Key, m mark, removing bool) {
	if old, ok := l.pending[key]; ok {
		m.since = old.since
	}
	l.pending[key] = waiting{m, removing}
}

// committed notes that all that was pending is now in the kernel, apart from
// what was refused.
func (l *statusTable) committed(c *Commit) (o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Kind == Repair {
		return l.repaired(c)
	}
	l.count(c)
	l.pending = map[plan.Key]waiting{}
	now := mark{c.Change.Revision, c.End.UnixNano()}
	refused := c.Result.Failed
	if len(l.programmed) == 0 {
		l.programmed = make(map[plan.Key]mark, len(c.Change.Set))
	}
	for _, f := range c.Change.Set {
		if _, ok := refused[f.Key]; !ok {
			l.settle(f.Key, &o)
			l.programmed[f.Key] = now
		}
	}
	for _, key := range c.Change.Removed {
		if _, ok := refused[key]; !ok {
			l.settle(key, &o)
			delete(l.programmed, key)
		}
	}
	l.refuseAll(c, now, &o)
	return o
}

// repaired notes that what somebody else changed is repaired. What is pending still
// is; what was refused may have been for what they did.
func (l *statusTable) repaired(c *Commit) (o outcome) {
	l.countWrites(c)
	l.refuseAll(c, mark{c.Change.Revision, c.End.UnixNano()}, &o)
	for key, f := range l.failed {
		if _, again := c.Result.Failed[key]; !again {
			f.retry = c.End
			l.failed[key] = f
			l.retryBy(c.End)
		}
	}
	return o
}

func (l *statusTable) refuseAll(c *Commit, now mark, o *outcome) {
	for key, err := range c.Result.Failed {
		_, desired := c.Desired.Frontends[key]
		l.refuse(key, failure{mark: now, removing: !desired, err: err}, c.End, o)
	}
	slices.SortFunc(o.news, func(a, b Failure) int { return a.Key.Compare(b.Key) })
}

// count keeps the summary. A change that left the kernel nothing to do is in
// the kernel, but is no commit.
func (l *statusTable) count(c *Commit) {
	s := &l.summary
	s.ProgrammedRevision = c.Change.Revision
	s.PendingSince = time.Time{}
	if c.Kind != None {
		l.countWrites(c)
	}
}

func (l *statusTable) countWrites(c *Commit) {
	s := &l.summary
	s.FailingSince = time.Time{}
	s.LastCommit, s.LastCommitDuration = c.End, c.Duration()
	s.Commits++
	if c.Full() {
		s.Reconciles++
	}
	s.Transactions += uint64(c.Result.Transactions)
	s.Elements += uint64(c.Result.Elements)
}

// settle notes that a frontend is as desired.
func (l *statusTable) settle(key plan.Key, o *outcome) {
	if _, ok := l.failed[key]; ok {
		delete(l.failed, key)
		o.recovered++
	}
	if len(l.failed) == 0 {
		l.nextRetry = time.Time{}
	}
}

// refuse notes that a frontend failed, and when it is to be tried again. It
// has failed since the first time in a row.
func (l *statusTable) refuse(key plan.Key, f failure, now time.Time, o *outcome) {
	old, again := l.failed[key]
	if again {
		f.since = old.since
	}
	f.attempts = old.attempts + 1
	f.retry = now.Add(backoff.After(f.attempts))
	l.failed[key] = f
	delete(l.programmed, key)
	l.retryBy(f.retry)
	if !again || fmt.Sprint(old.err) != fmt.Sprint(f.err) {
		o.news = append(o.news, Failure{key, f.status()})
	}
}

func (l *statusTable) retryBy(at time.Time) {
	if l.nextRetry.IsZero() || at.Before(l.nextRetry) {
		l.nextRetry = at
	}
}

// commitFailed notes that a commit failed as a whole.
func (l *statusTable) commitFailed(c *Commit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.summary
	s.LastError = c.Result.Err
	s.FailedCommits++
	if s.FailingSince.IsZero() {
		s.FailingSince = c.End
	}
}

// verified notes that the kernel was found as programmed.
func (l *statusTable) verified(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.LastVerified = now
}

// retryAt is when to look for failed frontends to try again, if there are any.
func (l *statusTable) retryAt() (at time.Time, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.nextRetry, !l.nextRetry.IsZero()
}

// takeRetries are the failed frontends that are to be tried again now, or all
// of them. The commit they go into puts those that fail again back.
func (l *statusTable) takeRetries(now time.Time, all bool) (keys []plan.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !all && (l.nextRetry.IsZero() || now.Before(l.nextRetry)) {
		return nil
	}
	l.nextRetry = time.Time{}
	for key, f := range l.failed {
		if all || !now.Before(f.retry) {
			keys = append(keys, key)
		} else {
			l.retryBy(f.retry)
		}
	}
	slices.SortFunc(keys, plan.Key.Compare)
	return keys
}

func (l *statusTable) read() Summary {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.summary
	s.Programmed, s.Pending, s.Failed = len(l.programmed), len(l.pending), len(l.failed)
	for key := range l.pending {
		if _, outdated := l.programmed[key]; outdated {
			s.Programmed--
		}
	}
	return s
}

func (l *statusTable) frontend(key plan.Key) (FrontendStatus, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if w, ok := l.pending[key]; ok {
		s := w.status(Pending)
		s.Removing = w.removing
		if !l.summary.FailingSince.IsZero() {
			s.Err = l.summary.LastError
		}
		return s, true
	}
	if f, ok := l.failed[key]; ok {
		return f.status(), true
	}
	m, ok := l.programmed[key]
	return m.status(Programmed), ok
}

func (l *statusTable) failures() []Failure {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]Failure, 0, len(l.failed))
	for key, f := range l.failed {
		out = append(out, Failure{key, f.status()})
	}
	return out
}

func (m mark) status(p Phase) FrontendStatus {
	return FrontendStatus{Phase: p, Revision: m.revision, Since: time.Unix(0, m.since)}
}

func (f failure) status() FrontendStatus {
	s := f.mark.status(Failed)
	s.Removing, s.Err, s.Attempts, s.Retry = f.removing, f.err, f.attempts, f.retry
	return s
}
