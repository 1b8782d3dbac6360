package status

import (
	"fmt"
	"io"
	"strings"
	"time"

	"sluice/internal/base/printable"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// maxRows is how many changes, failures and problems are written, so that the report
// fits on one screen.
const maxRows = 8

// Write writes a report as text. Names and errors in it are escaped.
func Write(w io.Writer, r *Report) error {
	t := &text{now: r.Now}
	t.Line("Sluice %s on node %s: %s mode, kernel %s", r.Version, r.Node, r.Mode, r.Kernel)
	t.Line("up %s, %s", printable.Duration(r.Now.Sub(r.Started)), r.health())
	if r.Serves != "" {
		t.Line("serves %s", r.Serves)
	}
	if r.ModeReason != "" {
		t.Line("%s", r.ModeReason)
	}
	if r.Waiting != "" {
		return t.Lines.Write(w) // nothing else is known
	}
	if c := r.Condition(); c.Text != "" {
		t.Line("%s: %s", c.Word, c.Text)
	}
	if r.Remedy != "" {
		t.Line("  what to do: %s", r.Remedy)
	}
	t.broken(r)
	t.failures(r)
	t.advisories(r.Advisories)
	t.Line("")
	t.row("sources", "%s", r.source())
	if r.APIServer != nil {
		t.apiServer(r.APIServer)
	}
	if r.IPv4Only {
		t.row("families", "IPv4 only: %s", plan.NoIPv6.Text())
	}
	if r.NodePortsOnly {
		t.row("serves", "%s", plan.NodePortsOnly.Text())
	}
	t.row("services", "%d, with %s in %s", r.Services, printable.Count(r.Endpoints, "endpoint"), printable.Count(r.Slices, "slice"))
	if words := r.byVerdict(); words != "" {
		t.row("", "%s", words)
	}
	if r.Ejected > 0 {
		t.row("", "%s left out because connections are not answered; kube-proxy events says which", printable.Count(r.Ejected, "endpoint"))
	}
	if n := r.OrphanSlices; n > 0 && r.ServiceProxyName == "" { // otherwise most are of other proxies' Services
		t.row("", "%s not used: the label kubernetes.io/service-name is missing, or names no Service", printable.Count(n, "more slice"))
		if len(r.Unlabelled) > 0 {
			t.row("", "without the label: %s", printable.List(r.Unlabelled, func(name string) string { return name }))
		}
	}
	f := r.Frontends
	t.row("frontends", "%d programmed, %d pending, %d failed, of %d", f.Programmed, f.Pending, f.Failed, f.Desired)
	t.direct(r.DirectReturn)
	t.row("revision", "%d, programmed %d", r.DesiredRevision, r.ProgrammedRevision)
	t.row(r.System.Name(), "last written %s, %s", t.ago(r.LastCommit), t.verified(r.LastVerified))
	if r.Evidence != nil {
		t.evidence(r.Evidence)
	}
	if r.FlowTable != nil {
		t.flowTable(r.FlowTable)
	}
	if r.Relay != nil {
		t.row("forwarding", "%s", r.Relay)
	}
	if r.Draining != nil {
		t.row("draining", "%s", r.Draining)
	}
	if r.Memory > 0 {
		t.row("memory", "%d MB", (r.Memory+500_000)/1_000_000)
	}
	if at := r.Addresses.String(); at != "" {
		t.row("servers", "%s", at)
	}
	if r.Writing != nil {
		t.writing(r.Writing)
	}
	t.changes(r.Changes)
	t.problems(r)
	return t.Lines.Write(w)
}

func (r *Report) health() string {
	words := r.Word.Text()
	if r.Word != verdict.Serving {
		words = strings.ToUpper(words)
	}
	if r.Waiting != "" {
		words += ": " + r.Waiting
	}
	if r.Leaving != "" {
		words += ", NOT ELIGIBLE for new connections: " + r.Leaving
	}
	for _, some := range []struct {
		n    int
		what string
	}{{len(r.Advisories), "warning"}, {r.ProblemCount, "problem"}} {
		if some.n > 0 {
			words += ", " + printable.Count(some.n, some.what)
		}
	}
	return words
}

// byVerdict counts the Services by verdict, the worst first.
func (r *Report) byVerdict() string {
	var parts []string
	for _, w := range verdict.Words {
		if n := r.ByVerdict[w]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, w.Text()))
		}
	}
	return strings.Join(parts, ", ")
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

// source is where the objects come from, and how far.
func (r *Report) source() string {
	if r.Source == "" {
		return r.sources()
	}
	return r.sources() + ", " + r.Source
}

// text is the text of a report.
type text struct {
	printable.Lines
	now time.Time
}

func (t *text) row(subject, format string, args ...any) { t.Row(10, subject, format, args...) }

func (t *text) ago(then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return printable.Duration(t.now.Sub(then)) + " ago"
}

// verified says when the kernel was last found right. A new proxy has not looked yet.
func (t *text) verified(then time.Time) string {
	if then.IsZero() {
		return "not checked yet"
	}
	return "last found right " + t.ago(then)
}

// broken adds the Services of which not all clients get an answer.
func (t *text) broken(r *Report) {
	for i, b := range r.Broken {
		if i == 0 {
			t.Line("")
		}
		if i == maxRows {
			t.row("", "and %d more, which kube-proxy services --failing lists", r.BrokenServices()-i)
			break
		}
		t.row("SERVICE", "%s %s: %s", b.Service, b.Verdict.Text(), b.Why)
	}
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
		if i == maxRows {
			t.row("", "and %d more", r.Frontends.Failed-i)
			break
		}
		t.row("FAILED", "%s %s: %s (%s)", f.Frontend, f.Service, f.Error, printable.Attempts(f.Attempts, f.Since, f.Retry, t.now))
	}
}

// evidence adds how old that is what traffic shows.
func (t *text) evidence(e *Evidence) {
	t.row("answers", "connections looked at %s, every %s", t.ago(e.At), seconds(e.Interval))
	if e.Error != "" {
		t.row("", "NOT SEEN: whether endpoints answer: %s", e.Error)
	}
	if e.Blind != "" {
		t.row("", "NOT SEEN: which connections endpoints refuse: %s", e.Blind)
	}
}

// flowTable adds what flow tables forward.
func (t *text) flowTable(f *FlowTable) {
	if len(f.Devices) > 0 {
		words := fmt.Sprintf("%s, at %s", f.FlowTable, printable.List(f.Devices, func(name string) string { return name }))
		if !f.Counted.IsZero() {
			words += fmt.Sprintf(": %s past the rules, counted %s", printable.Count(f.Connections, "established connection"), t.ago(f.Counted))
		}
		t.row("flow table", "%s", words)
	}
	if f.Error != "" {
		t.row("flow table", "NOT OFFLOADED: %s", f.Error)
	}
}

func (t *text) advisories(list []model.Problem) {
	for i, p := range list {
		if i == 0 {
			t.Line("")
		}
		if i == maxRows {
			t.row("", "and %d more", len(list)-i)
			return
		}
		t.row("WARNING", "%s", p)
	}
}

func (t *text) apiServer(s *APIServer) {
	if away := s.Away(t.now); away != "" {
		t.row("API server", "NOT CONNECTED: %s", away)
	} else {
		t.row("API server", "connected for %s", printable.Duration(t.now.Sub(s.Since)))
	}
	if len(s.WaitingFor) > 0 {
		t.row("", "waiting for all of %s", strings.Join(s.WaitingFor, ", "))
	}
	for _, a := range s.Without {
		t.row("", "going on without %ss: %s (%s)", a.Kind, a.Reason, a.Remedy)
	}
}

// writing adds the progress of a commit.
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
		case maxRows:
			return
		}
		what := strings.Join(c.Services, ", ")
		switch {
		case c.More > 0:
			what += fmt.Sprintf(" and %d more", c.More)
		case what == "":
			what = "the node"
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
		if i == maxRows {
			t.Line("  and %d more", r.ProblemCount-i)
			return
		}
		t.Line("  %s", p)
	}
}

func seconds(s float64) string { return printable.Duration(time.Duration(s * float64(time.Second))) }
