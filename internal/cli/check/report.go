package check

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"sluice/internal/base/printable"
	"sluice/internal/model"
)

// Level is how important a Finding is.
type Level string

// The levels.
const (
	Fine Level = "fine" // it was checked, and there is nothing to do
	Note Level = "note" // it is good to know
	Todo Level = "todo" // something should be done, or decided, before the switch
)

// Finding is something that was found out.
type Finding struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"` // "kernel", "Service default/web"
	Text    string `json:"text"`
	Remedy  string `json:"remedy,omitempty"`
}

// Report is all that was found out. The names of its fields in JSON are an interface and
// never change.
type Report struct {
	Node     string `json:"node"`
	Mode     string `json:"mode"` // that the proxy would run in
	Services int    `json:"services"`
	// InPlace are the modes of the kube-proxies whose rules are on the node.
	InPlace  []string  `json:"inPlace,omitempty"`
	Findings []Finding `json:"findings"`
}

// Ready reports whether there is nothing to do before the switch.
func (r *Report) Ready() bool { return r.count(Todo) == 0 }

func (r *Report) count(l Level) (n int) {
	for _, f := range r.Findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

func (r *Report) add(l Level, subject, remedy, format string, args ...any) {
	f := Finding{l, subject, fmt.Sprintf(format, args...), remedy}
	if !slices.Contains(r.Findings, f) {
		r.Findings = append(r.Findings, f)
	}
}

func (r *Report) addAll(l Level, problems []model.Problem) {
	for _, p := range problems {
		r.add(l, p.Object.String(), p.Remedy, "%s", p.What())
	}
}

// Write writes a report as text, what is to do first. Names and errors in it are
// escaped.
func Write(w io.Writer, r *Report) error {
	t := &printable.Lines{}
	t.Line("Switching node %s to Sluice in %s mode, with %s", r.Node, r.Mode, printable.Count(r.Services, "Service"))
	if n := r.count(Todo); n > 0 {
		t.Line("NOT READY: %s to do or to decide first", printable.Count(n, "thing"))
	} else {
		t.Line("READY: there is nothing to do first")
	}
	for _, level := range []Level{Todo, Note, Fine} {
		first := true
		for _, f := range r.Findings {
			if f.Level != level {
				continue
			}
			if first {
				t.Line("")
				first = false
			}
			t.Row(5, strings.ToUpper(string(level)), "%s: %s", f.Subject, f.Text)
			if f.Remedy != "" {
				t.Row(5, "", "  what to do: %s", f.Remedy)
			}
		}
	}
	return t.Write(w)
}
