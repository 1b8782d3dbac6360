//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"sluice/test/lab"
)

// table prints rows in columns of the necessary width.
func table(out io.Writer, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "   "+strings.Join(row, "\t"))
	}
	w.Flush()
}

// tally counts answers by host, and other outcomes by kind.
func tally(outcomes []lab.Outcome) map[string]int {
	counts := map[string]int{}
	for _, o := range outcomes {
		if o.Kind == lab.Answered {
			counts[o.By]++
		} else {
			counts[string(o.Kind)]++
		}
	}
	return counts
}

// crossTable is a table of counts: a row for each label, a column for each key.
func crossTable(labels []string, counts []map[string]int) [][]string {
	keys := map[string]bool{}
	for _, c := range counts {
		for key := range c {
			keys[key] = true
		}
	}
	columns := slices.Sorted(maps.Keys(keys))
	rows := [][]string{append([]string{""}, columns...)}
	for i, label := range labels {
		row := []string{label}
		for _, column := range columns {
			row = append(row, fmt.Sprint(counts[i][column]))
		}
		rows = append(rows, row)
	}
	return rows
}
