package printable

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table is text for people in columns. Cells are escaped.
type Table struct {
	lines  [][]string // those of one cell have any width
	widths []int
}

// Row adds a row.
func (t *Table) Row(cells ...string) {
	escaped := make([]string, len(cells))
	for i, cell := range cells {
		escaped[i] = Escape(cell)
		if i == len(t.widths) {
			t.widths = append(t.widths, 0)
		}
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(escaped[i]))
	}
	t.lines = append(t.lines, escaped)
}

// Note adds a line without columns.
func (t *Table) Note(text string) {
	t.lines = append(t.lines, []string{Escape(text)})
}

// Write writes the table. The last column is not padded.
func (t *Table) Write(w io.Writer) error {
	var b strings.Builder
	for _, line := range t.lines {
		for i, cell := range line {
			b.WriteString(cell)
			if i < len(line)-1 {
				b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

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
