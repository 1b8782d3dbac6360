package question

import (
	"fmt"

	"sluice/internal/base/printable"
	"sluice/internal/observe/history"
)

// Line returns an event as a line of text, which names its node unless that is "".
func Line(e *history.Event, node string) string {
	column, subject := "", "this node"
	if node != "" {
		column, subject = fmt.Sprintf("%-16s ", printable.Escape(node)), "the node"
	}
	if e.Service != "" {
		subject = e.Service
	}
	return fmt.Sprintf("%s  %s%-24s %s\n", e.At.Local().Format("2006-01-02 15:04:05.000"),
		column, printable.Escape(subject), printable.Escape(e.Text()))
}
