package printable

import (
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
