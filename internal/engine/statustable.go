package engine

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"sluice/internal/base/backoff"
	"sluice/internal/plan"
)

// mark is when a frontend got into its phase. It is small because there is one
// for each frontend.
type mark struct {
	revision uint64
	since    int64 // nanoseconds of Unix time
}

// waiting is a frontend that is planned and not yet in the kernel.
type waiting struct {
	mark
	removing bool
	before   *plan.Frontend // of the first change that waits
}

// failure is a frontend that the kernel refused.
type failure struct {
	mark
	removing bool
	err      error
	attempts int
	retry    time.Time
}

// statusTable holds the status of every frontend. The loop writes it, any
// goroutine reads.
type statusTable struct {
	mu              sync.RWMutex
	summary         Summary
	programmed      map[plan.Key]mark
	pending         map[plan.Key]waiting // overrides the other two
	failed          map[plan.Key]failure // overrides programmed
	lastProgressLog time.Time            // when progress was last logged
	lastAged        time.Time            // when summary.PendingSince was last determined
	// nextRetry is a time before which no failed frontend is due for a retry;
	// zero if none failed. It may be too early, which costs one check, so that
	// it need not be recomputed after each commit.
	nextRetry time.Time
}

// outcome is what a commit changed that is worth logging.
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

// queued records that a change that arrived at that time is being processed.
func (t *statusTable) queued(since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.summary.Synced = true
	if t.summary.PendingSince.IsZero() || since.Before(t.summary.PendingSince) {
		t.summary.PendingSince = since
	}
}

// planned records what a change makes pending, and the number of frontends that
// are desired with it.
func (t *statusTable) planned(change *plan.Change, since time.Time, frontends int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.summary.DesiredRevision = change.Revision
	t.summary.Frontends = frontends
	if len(t.pending) == 0 { // growing it step by step takes longer
		t.pending = make(map[plan.Key]waiting, len(change.Set))
	}
	for _, f := range change.Set {
		t.wait(f.Key, waiting{mark{change.Revision, since.UnixNano()}, false, change.Before[f.Key]})
	}
	for _, key := range change.Removed {
		t.wait(key, waiting{mark{change.Revision, since.UnixNano()}, true, change.Before[key]})
	}
}

func (t *statusTable) wait(key plan.Key, w waiting) {
	if old, ok := t.pending[key]; ok {
		w.since, w.before = old.since, old.before
	}
	t.pending[key] = w
}

// committed records that a change is now in the kernel, except for what was
// refused.
func (t *statusTable) committed(c *Commit) (o outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Kind == Repair {
		return t.repaired(c)
	}
	t.programs(c.Change, c.Waiting == 0)
	t.count(c)
	now := mark{c.Change.Revision, c.End.UnixNano()}
	refused := c.Result.Failed
	if len(t.programmed) == 0 {
		t.programmed = make(map[plan.Key]mark, len(c.Change.Set))
	}
	for _, f := range c.Change.Set {
		if _, ok := refused[f.Key]; !ok {
			t.settle(f.Key, &o)
			t.programmed[f.Key] = now
		}
	}
	for _, key := range c.Change.Removed {
		if _, ok := refused[key]; !ok {
			t.settle(key, &o)
			delete(t.programmed, key)
		}
	}
	t.refuseAll(c, now, &o)
	return o
}

// programs removes what a change contains from what is pending.
func (t *statusTable) programs(c *plan.Change, all bool) {
	if all {
		t.pending = map[plan.Key]waiting{}
		return
	}
	for _, f := range c.Set {
		delete(t.pending, f.Key)
	}
	for _, key := range c.Removed {
		delete(t.pending, key)
	}
}

// agePeriod is how often it is determined what has been pending for longest while there is more to
// write, which takes a look at all of it.
const agePeriod = time.Second

func (t *statusTable) oldest() (since time.Time) {
	for _, w := range t.pending {
		if at := time.Unix(0, w.since); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	return since
}

// repaired records that foreign changes were undone. What is pending stays
// pending; refused frontends are retried, since the foreign changes may have
// been the cause.
func (t *statusTable) repaired(c *Commit) (o outcome) {
	t.countWrites(c)
	t.refuseAll(c, mark{c.Change.Revision, c.End.UnixNano()}, &o)
	for key, f := range t.failed {
		if _, again := c.Result.Failed[key]; !again {
			f.retry = c.End
			t.failed[key] = f
			t.retryBy(c.End)
		}
	}
	return o
}

func (t *statusTable) refuseAll(c *Commit, now mark, o *outcome) {
	for key, err := range c.Result.Failed {
		_, desired := c.Desired.Frontends[key]
		t.refuse(key, failure{mark: now, removing: !desired, err: err}, c.End, o)
	}
	slices.SortFunc(o.news, func(a, b Failure) int { return a.Key.Compare(b.Key) })
}

// count updates the summary. A change for which nothing was written is in the
// kernel, but is not counted as a commit.
func (t *statusTable) count(c *Commit) {
	s := &t.summary
	if c.Waiting == 0 {
		s.ProgrammedRevision = c.Change.Revision
		s.PendingSince = time.Time{}
	} else if c.End.Sub(t.lastAged) >= agePeriod {
		s.PendingSince, t.lastAged = t.oldest(), c.End
	}
	if c.Kind != None {
		t.countWrites(c)
	}
}

func (t *statusTable) countWrites(c *Commit) {
	s := &t.summary
	s.FailingSince = time.Time{}
	s.LastCommit, s.LastCommitDuration = c.End, c.Duration()
	s.Commits++
	if c.Full() {
		s.Reconciles++
	}
	s.Transactions += uint64(c.Result.Transactions)
	s.Elements += uint64(c.Result.Elements)
}

// settle records that a frontend is as desired.
func (t *statusTable) settle(key plan.Key, o *outcome) {
	if _, ok := t.failed[key]; ok {
		delete(t.failed, key)
		o.recovered++
	}
	if len(t.failed) == 0 {
		t.nextRetry = time.Time{}
	}
}

// refuse records that a frontend failed, and when it is due for a retry. Its
// failure counts from the first one in a row.
func (t *statusTable) refuse(key plan.Key, f failure, now time.Time, o *outcome) {
	old, again := t.failed[key]
	if again {
		f.since = old.since
	}
	f.attempts = old.attempts + 1
	f.retry = now.Add(backoff.After(f.attempts))
	t.failed[key] = f
	delete(t.programmed, key)
	t.retryBy(f.retry)
	if !again || fmt.Sprint(old.err) != fmt.Sprint(f.err) {
		o.news = append(o.news, Failure{key, f.status()})
	}
}

func (t *statusTable) retryBy(at time.Time) {
	if t.nextRetry.IsZero() || at.Before(t.nextRetry) {
		t.nextRetry = at
	}
}

func (t *statusTable) commitFailed(c *Commit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.summary
	s.LastError = c.Result.Err
	s.FailedCommits++
	if s.FailingSince.IsZero() {
		s.FailingSince = c.End
	}
}

func (t *statusTable) verified(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.summary.LastVerified = now
}

// retryAt returns when to look for failed frontends to retry, if there are any.
func (t *statusTable) retryAt() (at time.Time, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.nextRetry, !t.nextRetry.IsZero()
}

// takeRetries returns the failed frontends that are due for a retry, or all of
// them. The commit that contains them puts those that fail again back.
func (t *statusTable) takeRetries(now time.Time, all bool) (keys []plan.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !all && (t.nextRetry.IsZero() || now.Before(t.nextRetry)) {
		return nil
	}
	t.nextRetry = time.Time{}
	for key, f := range t.failed {
		if all || !now.Before(f.retry) {
			keys = append(keys, key)
		} else {
			t.retryBy(f.retry)
		}
	}
	slices.SortFunc(keys, plan.Key.Compare)
	return keys
}

func (t *statusTable) read() Summary {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.summary
	s.Programmed, s.Pending, s.Failed = len(t.programmed), len(t.pending), len(t.failed)
	for key := range t.pending {
		if _, outdated := t.programmed[key]; outdated {
			s.Programmed--
		}
	}
	return s
}

func (t *statusTable) frontend(key plan.Key) (FrontendStatus, bool) {
	if s, is := t.unsettled(key); is {
		return s, true
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	m, ok := t.programmed[key]
	return m.status(Programmed), ok
}

func (t *statusTable) unsettled(key plan.Key) (s FrontendStatus, is bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if w, ok := t.pending[key]; ok {
		s := w.status(Pending)
		s.Removing, s.Before = w.removing, w.before
		if !t.summary.FailingSince.IsZero() {
			s.Err = t.summary.LastError
		}
		return s, true
	}
	f, ok := t.failed[key]
	if !ok {
		return s, false
	}
	return f.status(), true
}

// settled reports whether no frontend is pending or failed.
func (t *statusTable) settled() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.pending) == 0 && len(t.failed) == 0
}

func (t *statusTable) failures() []Failure {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]Failure, 0, len(t.failed))
	for key, f := range t.failed {
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
