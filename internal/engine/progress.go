package engine

import (
	"time"

	"sluice/internal/dataplane"
)

// progressLogPeriod is how often the progress of a long commit is logged.
const progressLogPeriod = 5 * time.Second

// progressed is called by the dataplane to report its progress.
func (e *Engine) progressed(p dataplane.Progress) {
	now := e.clock.Now()
	since, log := e.statuses.progressed(p, now)
	if log {
		e.log.Info("Still programming", "frontends", p.Done, "of", p.Total,
			"transactions", p.Transactions, "duration", now.Sub(since))
	}
}

// writes records that a commit is in progress, wrote that it has ended.
func (t *statusTable) writes(start time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.summary.WritingSince, t.lastProgressLog = start, start
}

func (t *statusTable) wrote() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.summary.WritingSince, t.summary.Progress = time.Time{}, dataplane.Progress{}
}

// progressed records the progress of the commit and reports whether to log it.
func (t *statusTable) progressed(p dataplane.Progress, now time.Time) (since time.Time, log bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.summary.Progress = p
	if log = now.Sub(t.lastProgressLog) >= progressLogPeriod; log {
		t.lastProgressLog = now
	}
	return t.summary.WritingSince, log
}
