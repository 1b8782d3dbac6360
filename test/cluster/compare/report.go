package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// report prints a table, a column for each contestant.
func report(w io.Writer, all []figures) error {
	rows := []struct {
		title string
		value func(figures) string
	}{
		{"cold start, s", func(f figures) string { return seconds(f.start) }},
		{"one change, median, ms", func(f figures) string { return milliseconds(f.changes[len(f.changes)/2]) }},
		{"one change, longest, ms", func(f figures) string { return milliseconds(f.changes[len(f.changes)-1]) }},
		{"many changes at once, s", func(f figures) string { return seconds(f.burst) }},
		{"… until the API server had them, s", func(f figures) string { return seconds(f.written) }},
		{"memory, MB", func(f figures) string { return fmt.Sprintf("%.0f", f.steady) }},
		{"memory at most, MB", func(f figures) string { return fmt.Sprintf("%.0f", f.peak) }},
		{"CPU time of all that, s", func(f figures) string { return seconds(f.cpu) }},
	}
	fmt.Fprintln(w)
	out := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	var head []string
	for _, f := range all {
		head = append(head, f.name+", "+f.mode)
	}
	fmt.Fprintf(out, "\t%s\n", strings.Join(head, "\t"))
	for _, row := range rows {
		fmt.Fprint(out, row.title)
		for _, f := range all {
			fmt.Fprint(out, "\t", row.value(f))
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) }
