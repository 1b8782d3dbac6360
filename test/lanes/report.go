//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errFailed is report's error: what failed has been printed.
var errFailed = errors.New("not everything passed")

// slowestShown is how many of the slowest packages are listed.
const slowestShown = 10

// report prints the output of what failed, each in one piece, then what took long, and how
// many tests passed.
func (b *board) report() error {
	failed := len(b.abandoned) > 0
	for _, s := range b.steps {
		if s.err != nil {
			failed = true
			b.printFailure(s)
		}
	}
	b.printSlowest()
	b.printTotals()
	for _, text := range b.abandoned {
		fmt.Fprintln(b.out, text)
	}
	if failed {
		return errFailed
	}
	return nil
}

func (b *board) printFailure(s *stepOutcome) {
	fmt.Fprintf(b.out, "\n===== %s: %s: %v\n", s.lane, s.name, s.err)
	if rest := s.output.String() + s.tests.stray.String(); rest != "" {
		fmt.Fprint(b.out, rest)
	}
	for _, p := range s.tests.packages {
		if p.status != "FAIL" && p.status != "" {
			continue
		}
		fmt.Fprintf(b.out, "----- %s %s\n%s", p.name, strings.Join(p.failed, " "), p.failure())
	}
}

func (b *board) printSlowest() {
	var packages []*packageOutcome
	for _, s := range b.steps {
		for _, p := range s.tests.packages {
			if !p.cached && p.elapsed > 0 {
				packages = append(packages, p)
			}
		}
	}
	slices.SortFunc(packages, bySlowness)
	if len(packages) == 0 {
		return
	}
	fmt.Fprintln(b.out, "\nThe slowest packages:")
	for _, p := range packages[:min(slowestShown, len(packages))] {
		fmt.Fprintf(b.out, "%8.1fs  %s\n", p.elapsed.Seconds(), p.name)
	}
}

func (b *board) printTotals() {
	fmt.Fprintln(b.out, "\nThe lanes:")
	counts := map[string]int{}
	end := b.start
	for _, l := range b.lanes {
		var parts []string
		for _, s := range b.steps {
			if s.lane != l.name {
				continue
			}
			part := fmt.Sprintf("%s %s", s.name, clock(s.end.Sub(s.start)))
			if s.skipped != "" {
				part += " (skipped: " + s.skipped + ")"
			}
			parts = append(parts, part)
			if s.end.After(end) {
				end = s.end
			}
			for _, p := range s.tests.packages {
				for action, n := range p.counts {
					counts[action] += n
				}
			}
		}
		fmt.Fprintf(b.out, "  %-8s %s\n", l.name, strings.Join(parts, ", "))
	}
	fmt.Fprintf(b.out, "In all %s.\n\n%d passed, %d failed, %d skipped\n", clock(end.Sub(b.start)), counts["pass"], counts["fail"], counts["skip"])
}
