package printable

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Page is text for humans, built line by line. Each line is escaped, so that no
// part of one can start another.
type Page struct{ b strings.Builder }

// Line adds a line.
func (p *Page) Line(format string, args ...any) {
	p.b.WriteString(strings.TrimRight(Escape(fmt.Sprintf(format, args...)), " "))
	p.b.WriteByte('\n')
}

// Row adds a line with its subject in a column of that width.
func (p *Page) Row(width int, subject, format string, args ...any) {
	p.Line("%-*s %s", width, Escape(subject), fmt.Sprintf(format, args...))
}

// Write writes the page to w with a single call.
func (p *Page) Write(w io.Writer) error {
	_, err := io.WriteString(w, p.b.String())
	return err
}

// Duration formats a duration with few digits, negative ones as 0s.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
