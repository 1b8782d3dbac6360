package engine

import (
	"time"

	"sluice/internal/dataplane"
)

// tellEvery is how often it is logged how far a commit is that takes long.
const tellEvery = 5 * time.Second

// progressed is told by the dataplane how far it is.
func (e *Engine) progressed(p dataplane.Progress) {
	now := e.clock.Now()
	since, tell := e.ledger.progressed(p, now)
	if tell {
		e.log.Info("Still programming", "frontends", p.Done, "of", p.Total,
			"transactions", p.Transactions, "duration", now.Sub(since))
	}
}

// writes notes that a commit is under way, wrote that it is over.
func (l *ledger) writes(start time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.WritingSince, l.told = start, start
}

func (l *ledger) wrote() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.WritingSince, l.summary.Progress = time.Time{}, dataplane.Progress{}
}

// progressed notes how far the commit is, and says whether it is time to tell.
func (l *ledger) progressed(p dataplane.Progress, now time.Time) (since time.Time, tell bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.Progress = p
	if tell = now.Sub(l.told) >= tellEvery; tell {
		l.told = now
	}
	return l.summary.WritingSince, tell
}
