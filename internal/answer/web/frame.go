package web

import (
	"net/http"
	"time"

	"sluice/internal/answer/status"
)

// longCommit is how long a commit takes before its progress is shown. That of the
// first one is always shown.
const longCommit = time.Second

// frame is the part that all pages have in common.
type frame struct {
	Title     string
	Report    *status.Report
	Condition status.Condition
	// Progress is that of a commit that takes long, nil for none.
	Progress *progress
	Time     string
}

// progress is the progress of a commit.
type progress struct {
	Done, Total, Percent int
	Since                string
}

func newFrame(title string, r *status.Report) frame {
	return frame{
		Title:     title,
		Report:    r,
		Condition: r.Condition(),
		Progress:  progressOf(r),
		Time:      r.Now.UTC().Format("15:04:05 UTC"),
	}
}

// missing says that there is no such page, and where to go.
func (h *Handler) missing(*http.Request) answer {
	return answer{http.StatusNotFound, missingTemplate, newFrame("No such page", h.Status())}
}

func condition(level status.Level, word, text string) status.Condition {
	return status.Condition{Level: level, Word: word, Text: text}
}

func progressOf(r *status.Report) *progress {
	w := r.Writing
	if w == nil || w.Total == 0 || r.Commits > 0 && r.Now.Sub(w.Since) < longCommit {
		return nil
	}
	done := min(w.Done, w.Total)
	return &progress{done, w.Total, 100 * done / w.Total, duration(r.Now.Sub(w.Since))}
}
