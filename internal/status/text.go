package status

import (
	"fmt"
	"io"
	"strings"
	"time"

	"sluice/internal/printable"
)

// mostRows is how many changes, failures and problems are written for people,
// so that all is on one screen.
const mostRows = 8

// Write writes a report for people. Whatever names and errors are in it, it is
// lines of visible characters.
func Write(w io.Writer, r *Report) error {
	t := &text{now: r.Now}
	t.Line("Sluice %s on node %s: %s mode, kernel %s", r.Version, r.Node, r.Mode, r.Kernel)
	t.Line("up %s, %s", printable.Duration(r.Now.Sub(r.Started)), r.health())
	if r.ModeReason != "" {
		t.Line("%s", r.ModeReason)
	}
	if r.Waiting != "" {
		return t.Page.Write(w) // there is nothing else to tell
	}
	t.failures(r)
	t.advisories(r.Advisories)
	t.Line("")
	t.row("sources", "%s", r.sources())
	if r.APIServer != nil {
		t.apiServer(r.APIServer)
	}
	if r.IPv4Only {
		t.row("families", "IPv4 only: IPv6 is switched off on this node")
	}
	t.row("services", "%d, with %d endpoints in %d slices", r.Services, r.Endpoints, r.Slices)
	f := r.Frontends
	t.row("frontends", "%d programmed, %d pending, %d failed, of %d", f.Programmed, f.Pending, f.Failed, f.Desired)
	t.row("revision", "%d, programmed %d", r.DesiredRevision, r.ProgrammedRevision)
	t.row("kernel", "last written %s, last found right %s", t.ago(r.LastCommit), t.ago(r.LastVerified))
	if r.Writing != nil {
		t.writing(r.Writing)
	}
	t.changes(r.Changes)
	t.problems(r)
	return t.Page.Write(w)
}

func (r *Report) health() string {
	words := "healthy"
	switch {
	case r.Waiting != "":
		words = "NOT SERVING: " + r.Waiting
	case !r.Healthy:
		words = "NOT HEALTHY: the kernel has not followed for too long"
	}
	if r.Leaving != "" {
		words += ", NOT ELIGIBLE for new connections: " + r.Leaving
	}
	return words
}

func (r *Report) sources() string {
	if len(r.WaitingFor) > 0 {
		return "waiting for " + strings.Join(r.WaitingFor, ", ")
	}
	if !r.Synced {
		return "starting"
	}
	return "in sync"
}

// text is a page about a moment.
type text struct {
	printable.Page
	now time.Time
}

func (t *text) row(subject, format string, args ...any) { t.Row(10, subject, format, args...) }

func (t *text) ago(then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return printable.Duration(t.now.Sub(then)) + " ago"
}

func (t *text) failures(r *Report) {
	if !r.FailingSince.IsZero() {
		t.Line("")
		t.row("FAILING", "since %s: %s", printable.Duration(t.now.Sub(r.FailingSince)), r.LastError)
	}
	for i, f := range r.Failures {
		if i == 0 {
			t.Line("")
		}
		if i == mostRows {
			t.row("", "and %d more", r.Frontends.Failed-i)
			break
		}
		t.row("FAILED", "%s %s: %s (tried %d times in %s, next in %s)", f.Frontend, f.Service, f.Error,
			f.Attempts, printable.Duration(t.now.Sub(f.Since)), printable.Duration(f.Retry.Sub(t.now)))
	}
}

func (t *text) advisories(list []Problem) {
	for i, p := range list {
		if i == 0 {
			t.Line("")
		}
		if i == mostRows {
			t.row("", "and %d more", len(list)-i)
			return
		}
		t.row("WARNING", "%s: %s (%s)", p.Object, p.Reason, p.Remedy)
	}
}

func (t *text) apiServer(s *APIServer) {
	since := printable.Duration(t.now.Sub(s.Since))
	switch {
	case s.Connected:
		t.row("API server", "connected for %s", since)
	case s.Error == "":
		t.row("API server", "no answer yet, for %s", since)
	default:
		t.row("API server", "NOT CONNECTED for %s, what is known stays in force: %s", since, s.Error)
	}
	if len(s.WaitingFor) > 0 {
		t.row("", "waiting for all of %s", strings.Join(s.WaitingFor, ", "))
	}
	for _, a := range s.Without {
		t.row("", "going on without %ss: %s (%s)", a.Kind, a.Reason, a.Remedy)
	}
}

// writing shows how far a commit is.
func (t *text) writing(w *Writing) {
	took := printable.Duration(t.now.Sub(w.Since))
	if w.Total == 0 {
		t.row("writing", "for %s", took)
		return
	}
	const width = 30
	done := min(w.Done, w.Total)
	filled := done * width / w.Total
	t.row("writing", "[%s%s] %d of %d frontends, %d transactions, for %s",
		strings.Repeat("#", filled), strings.Repeat(".", width-filled), done, w.Total, w.Transactions, took)
}

func (t *text) changes(changes []Change) {
	for i, c := range changes {
		switch i {
		case 0:
			t.Line("")
			t.Line("last changes, how long ago")
		case mostRows:
			return
		}
		what := strings.Join(c.Services, ", ")
		switch {
		case len(c.Services) == mostServices && c.Set > mostServices:
			what += " …"
		case what == "":
			what = "no Service"
		}
		failed := ""
		if c.Failed > 0 {
			failed = fmt.Sprintf(", %d FAILED", c.Failed)
		}
		t.Line("  %-10s %s: %d set, %d removed%s; %d elements in %s, %s after the event", printable.Duration(t.now.Sub(c.At)), what,
			c.Set, c.Removed, failed, c.Elements, seconds(c.Took), seconds(c.Latency))
	}
}

func (t *text) problems(r *Report) {
	if r.ProblemCount == 0 {
		return
	}
	t.Line("")
	t.Line("refused, or left out of objects: %d", r.ProblemCount)
	for i, p := range r.Problems {
		if i == mostRows {
			t.Line("  and %d more", r.ProblemCount-i)
			return
		}
		where := p.Object
		if p.Field != "" {
			where += ", " + p.Field
		}
		t.Line("  %s: %s", where, p.Reason)
	}
}

func seconds(s float64) string { return printable.Duration(time.Duration(s * float64(time.Second))) }
