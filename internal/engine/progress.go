package engine

import (
	"time"

	"sluice/internal/dataplane"
)

// progressLogPeriod is how often it is logged how far a commit is that takes long.
const progressLogPeriod = 5 * time.Second

// progressed is told by the dataplane how far it is.
func (e *Engine) progressed(p dataplane.Progress) {
	now := e.clock.Now()
	since, tell := e.statuses.progressed(p, now)
	if tell {
		e.log.Info("Still programming", "frontends", p.Done, "of", p.Total,
			"transactions", p.Transactions, "duration", now.Sub(since))
	}
}

// writes notes that a commit is under way, wrote that it is over.
func (l *statusTable) writes(start time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.WritingSince, l.lastProgressLog = start, start
}

func (l *statusTable) wrote() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.WritingSince, l.summary.Progress = time.Time{}, dataplane.Progress{}
}

// progressed notes how far the commit is, and says whether it is time to tell.
func (l *statusTable) progressed(p dataplane.Progress, now time.Time) (since time.Time, tell bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.Progress = p
	if tell = now.Sub(l.lastProgressLog) >= progressLogPeriod; tell {
		l.lastProgressLog = now
	}
	return l.summary.WritingSince, tell
}
