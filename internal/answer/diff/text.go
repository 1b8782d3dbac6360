package diff

import (
	"fmt"
	"io"
	"strings"

	"sluice/internal/base/printable"
)

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
