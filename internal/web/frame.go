package web

import (
	"strings"
	"time"

	"sluice/internal/status"
)

// longCommit is how long a commit takes before its progress is shown. The first
// one is always worth it.
const longCommit = time.Second

// frame is what every page has around it.
type frame struct {
	Title  string
	Report *status.Report
	Sign   sign
	// Progress is of a commit that takes long, nil if there is none.
	Progress *progress
	Time     string
}

// sign is how something is: a word for it, the same in a sentence, and a class
// that gives it its colour.
type sign struct{ Class, Word, Text string }

// The classes.
const (
	good = "good"
	busy = "busy"
	fair = "fair"
	bad  = "bad"
)

// progress is how far a commit is.
type progress struct {
	Done, Total, Percent int
	Since                string
}

func newFrame(title string, r *status.Report) frame {
	return frame{
		Title:    title,
		Report:   r,
		Sign:     signOf(r),
		Progress: progressOf(r),
		Time:     r.Now.UTC().Format("15:04:05 UTC"),
	}
}

// signOf says how the proxy is, the worst first.
func signOf(r *status.Report) sign {
	switch f := r.Frontends; {
	case !r.Synced:
		text := "Nothing is written before it is known what there is."
		if len(r.WaitingFor) > 0 {
			text = "Waiting for " + strings.Join(r.WaitingFor, ", ") + ". " + text
		}
		return sign{busy, "Starting", text}
	case !r.FailingSince.IsZero():
		return sign{bad, "Failing", "The kernel cannot be programmed. It is tried again."}
	case !r.Healthy:
		return sign{bad, "Behind", "The kernel has not followed for too long."}
	case r.Commits == 0:
		return sign{busy, "Starting", "The kernel is programmed for the first time."}
	case f.Failed > 0:
		return sign{fair, count(f.Failed) + " refused", "The kernel refused some frontends. All others work."}
	case r.Leaving != "":
		return sign{fair, "Not eligible", "Load balancers are told to send no new connections: " + r.Leaving + "."}
	case f.Pending > 0:
		return sign{busy, "Programming", count(f.Pending) + " frontends are on their way into the kernel."}
	}
	return sign{good, "In sync", "The kernel does what is desired."}
}

func progressOf(r *status.Report) *progress {
	w := r.Writing
	if w == nil || w.Total == 0 || r.Commits > 0 && r.Now.Sub(w.Since) < longCommit {
		return nil
	}
	done := min(w.Done, w.Total)
	return &progress{done, w.Total, 100 * done / w.Total, duration(r.Now.Sub(w.Since))}
}
