package printable

import (
	"fmt"
	"io"
	"strings"
)

// Lines is text for people. Each line is escaped, so that no part of one can start
// another.
type Lines struct{ b strings.Builder }

// Line adds a line.
func (l *Lines) Line(format string, args ...any) {
	l.b.WriteString(strings.TrimRight(Escape(fmt.Sprintf(format, args...)), " "))
	l.b.WriteByte('\n')
}

// Row adds a line with its subject in a column of a width.
func (l *Lines) Row(width int, subject, format string, args ...any) {
	l.Line("%-*s %s", width, Escape(subject), fmt.Sprintf(format, args...))
}

// Write writes all lines at once.
func (l *Lines) Write(w io.Writer) error {
	_, err := io.WriteString(w, l.b.String())
	return err
}
