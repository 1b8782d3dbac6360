package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// row is a figure of each number of nodes.
type row struct {
	title string
	value func(figures) float64
	// grows says that it is of all nodes together, so that a line through the figures makes sense.
	grows bool
}

func rows() []row {
	seconds := func(of func(figures) time.Duration) func(figures) float64 {
		return func(f figures) float64 { return of(f).Seconds() }
	}
	perNode := func(of func(figures) float64) func(figures) float64 {
		return func(f figures) float64 { return of(f) / float64(f.nodes) }
	}
	megabytes := func(of func(figures) int64) func(figures) float64 {
		return func(f figures) float64 { return float64(of(f)) / 1e6 }
	}
	return []row{
		{"start of all at once: until the last is in sync, s", seconds(func(f figures) time.Duration { return f.together.took }), false},
		{"… CPU time of the API server, s", seconds(func(f figures) time.Duration { return f.together.server }), true},
		{"… received by all nodes, MB", megabytes(func(f figures) int64 { return f.together.bytes }), true},
		{"… received by one node, MB", perNode(megabytes(func(f figures) int64 { return f.together.bytes })), false},
		{"… lists of a node, of all kinds", perNode(func(f figures) float64 { return float64(f.together.lists) }), false},
		{"… memory of the API server at most, MB", func(f figures) float64 { return f.memory }, true},
		{"… CPU time of a node, s", perNode(seconds(func(f figures) time.Duration { return f.together.own })), false},
		{"one after the other: CPU time of the API server, s", seconds(func(f figures) time.Duration { return f.rolling.server }), true},
		{"… time of a node, s", perNode(seconds(func(f figures) time.Duration { return f.rolling.took })), false},
		{"changes: per second", func(f figures) float64 { return float64(f.changes) / f.steady.took.Seconds() }, false},
		{"… cores of the API server", func(f figures) float64 { return f.steady.server.Seconds() / f.steady.took.Seconds() }, true},
		{"… received by one node for one change, kB", func(f figures) float64 {
			return float64(f.steady.bytes) / 1e3 / float64(f.nodes) / float64(f.changes)
		}, false},
		{"… CPU time of a node for one change, ms", func(f figures) float64 {
			return f.steady.own.Seconds() * 1e3 / float64(f.nodes) / float64(f.changes)
		}, false},
		{"… request to commit, p50, ms", func(f figures) float64 { return f.p50.Seconds() * 1e3 }, false},
		{"… p99, ms", func(f figures) float64 { return f.p99.Seconds() * 1e3 }, false},
		{"… not committed by a node of its own", func(f figures) float64 { return float64(f.missing) }, false},
		{"API server killed: until it is ready again, s", seconds(func(f figures) time.Duration { return f.ready }), false},
		{"… until all nodes follow it, s", seconds(func(f figures) time.Duration { return f.restart.took }), false},
		{"… CPU time of the API server until then, s", seconds(func(f figures) time.Duration { return f.restart.server }), true},
		{"… lists of all nodes", func(f figures) float64 { return float64(f.restart.lists) }, false},
		{"… lists of one kind by one node, at most", func(f figures) float64 { return float64(f.restart.most) }, false},
		{"… refused or unanswered requests of a node", perNode(func(f figures) float64 { return float64(f.restart.refused) }), false},
		{"… received by one node until then, MB", perNode(megabytes(func(f figures) int64 { return f.restart.bytes })), false},
		{"… watches of a node, of all kinds", perNode(func(f figures) float64 { return float64(f.restart.watches) }), false},
	}
}

// report prints a table, with a straight line through what grows with the number of nodes.
func report(w io.Writer, all []figures, target int) {
	out := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprint(out, "\nnodes")
	for _, f := range all {
		fmt.Fprintf(out, "\t%d", f.nodes)
	}
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(out, "\tline\tresiduals\t%d nodes\n", target)
	for _, r := range rows() {
		fmt.Fprint(out, r.title)
		for _, f := range all {
			fmt.Fprintf(out, "\t%.4g", r.value(f))
		}
		if r.grows && len(all) > 1 {
			a, b := fit(all, r.value)
			fmt.Fprintf(out, "\t%.3g + %.3g n\t", a, b)
			for i, f := range all {
				if i > 0 {
					fmt.Fprint(out, ", ")
				}
				fmt.Fprintf(out, "%+.2g", r.value(f)-a-b*float64(f.nodes))
			}
			fmt.Fprintf(out, "\t%.4g", a+b*float64(target))
		}
		fmt.Fprintln(out)
	}
	out.Flush()
}

// fit returns the line a + b n with the least squares.
func fit(all []figures, value func(figures) float64) (a, b float64) {
	var n, x, y, xx, xy float64
	for _, f := range all {
		fx, fy := float64(f.nodes), value(f)
		n, x, y, xx, xy = n+1, x+fx, y+fy, xx+fx*fx, xy+fx*fy
	}
	if d := n*xx - x*x; math.Abs(d) > 0 {
		b = (n*xy - x*y) / d
	}
	return (y - b*x) / n, b
}
