package diff

import (
	"fmt"
	"io"
	"strings"

	"sluice/internal/base/printable"
	"sluice/internal/model"
)

// Limits of a Report, so that it stays readable.
const (
	MaxFrontends = 2000
	maxListed    = 100 // values of a list
)

// Report is how a new plan differs from an old one.
type Report struct {
	// Added, Removed and Changed count the frontends that differ.
	Added   int `json:"added"`
	Removed int `json:"removed"`
	Changed int `json:"changed"`
	// Frontends are the first MaxFrontends of them, by Service.
	Frontends []Frontend `json:"frontends,omitempty"`
	// HealthChecks are health check node ports, Node the settings of the node, and
	// Configuration fields of a configuration.
	HealthChecks  []Change `json:"healthChecks,omitempty"`
	Node          []Change `json:"node,omitempty"`
	Configuration []Change `json:"configuration,omitempty"`
	// Problems are those of the objects of the new plan, and NewProblems those of them
	// that the old one does not have.
	Problems    []string `json:"problems,omitempty"`
	NewProblems []string `json:"newProblems,omitempty"`
}

// Different reports whether the plans differ. Problems do not count.
func (r *Report) Different() bool {
	return r.Added+r.Removed+r.Changed+len(r.HealthChecks)+len(r.Node)+len(r.Configuration) > 0
}

// unlisted returns how many frontends differ and are not listed.
func (r *Report) unlisted() int { return r.Added + r.Removed + r.Changed - len(r.Frontends) }

// Action is how a frontend differs.
type Action string

// The actions.
const (
	Added   Action = "added"
	Removed Action = "removed"
	Changed Action = "changed"
)

// Frontend is a frontend that differs.
type Frontend struct {
	Action   Action   `json:"change"`
	Service  string   `json:"service"` // namespace/name
	Port     string   `json:"port,omitempty"`
	Kind     string   `json:"kind"`
	Frontend string   `json:"frontend"` // address, port and protocol
	Details  []Change `json:"details,omitempty"`
	Restart  string   `json:"restart,omitempty"` // why it needs a restart, if it does

	name model.Name
}

// Change is one difference: another value, or values added to and removed from a
// list.
type Change struct {
	What    string `json:"what"`
	Old     string `json:"old,omitempty"`
	New     string `json:"new,omitempty"`
	Added   *List  `json:"added,omitempty"`
	Removed *List  `json:"removed,omitempty"`
	Restart string `json:"restart,omitempty"` // why it needs a restart, if it does
}

// List is the first few of some values.
type List struct {
	Values []string `json:"values"`
	More   int      `json:"more,omitempty"` // that are not in Values
}

// add adds to a list, which may be nil.
func (l *List) add(value string) *List {
	if l == nil {
		l = &List{}
	}
	if len(l.Values) == maxListed {
		l.More++
	} else {
		l.Values = append(l.Values, value)
	}
	return l
}

var signs = map[Action]string{Added: "+", Removed: "-", Changed: "~"}

// Write writes a report as text.
func Write(w io.Writer, r *Report) error {
	var p printable.Lines
	if r.Different() {
		p.Line("Frontends: %d added, %d removed, %d changed", r.Added, r.Removed, r.Changed)
	} else {
		p.Line("No difference.")
	}
	for _, f := range r.Frontends {
		port := ""
		if f.Port != "" {
			port = " port " + f.Port
		}
		p.Line("%s %s%s: %s %s%s", signs[f.Action], f.Service, port, f.Kind, f.Frontend, afterRestart(f.Restart))
		for _, c := range f.Details {
			p.Line("    %s", c.text(f.Action == Changed))
		}
	}
	if more := r.unlisted(); more > 0 {
		p.Line("  and %d more frontends", more)
	}
	section(&p, "Health check node ports", r.HealthChecks)
	section(&p, "Node", r.Node)
	section(&p, "Configuration", r.Configuration)
	if len(r.NewProblems) > 0 {
		p.Line("New problems, and what to do")
	}
	for _, text := range r.NewProblems {
		p.Line("! %s", text)
	}
	if old := len(r.Problems) - len(r.NewProblems); old > 0 {
		p.Line("Problems as before: %d", old)
	}
	return p.Write(w)
}

func afterRestart(why string) string {
	if why == "" {
		return ""
	}
	return "; requires a restart: " + why
}

func section(p *printable.Lines, title string, list []Change) {
	if len(list) == 0 {
		return
	}
	p.Line("%s", title)
	for _, c := range list {
		p.Line("~ %s", c.text(true))
	}
}

// text is the change in one line, without the old value if the frontend is new.
func (c *Change) text(had bool) string {
	var parts []string
	if c.Added != nil && had {
		parts = append(parts, "added: "+c.Added.text())
	} else if c.Added != nil {
		parts = append(parts, c.Added.text())
	}
	if c.Removed != nil {
		parts = append(parts, "removed: "+c.Removed.text())
	}
	if c.Added == nil && c.Removed == nil {
		text := c.New
		if had && c.Old != "" {
			text += ", was " + c.Old
		}
		parts = append(parts, text)
	}
	return c.What + ": " + strings.Join(parts, "; ") + afterRestart(c.Restart)
}

func (l *List) text() string {
	text := strings.Join(l.Values, ", ")
	if l.More > 0 {
		text += fmt.Sprintf(" and %d more", l.More)
	}
	return text
}
