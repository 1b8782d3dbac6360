//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

// barred is the mode whose figures are put beside bars.
const barred = "nftables"

// scores are figures of the mode beside what they may be at most.
type scores struct{ list []score }

type score struct {
	what          string
	measured, bar float64
	unit          string
}

// time adds how long something took.
func (s *scores) time(what string, took, bar time.Duration) {
	s.list = append(s.list, score{what, took.Seconds() * 1e3, bar.Seconds() * 1e3, " ms"})
}

// number adds something else.
func (s *scores) number(what string, measured, bar float64, unit string) {
	s.list = append(s.list, score{what, measured, bar, unit})
}

// ofSize adds the figures of a cluster that have a bar.
func (s *scores) ofSize(w workload, f figures) {
	name := w.String()
	w.Mode = ""
	switch w {
	case workload{Services: 5_000, Endpoints: 50}:
		s.time(name+", restart until changes flow", f.Restart, 800*time.Millisecond)
		s.time(name+", one change while what was put off is compared, p99", f.Meanwhile.P99, 50*time.Millisecond)
	case workload{Services: 1, Endpoints: 100_000}:
		s.time(name+", one endpoint added, p50", f.Add.P50, 5*time.Millisecond)
		s.time(name+", one endpoint removed, p50", f.Remove.P50, 5*time.Millisecond)
		s.time(name+", one endpoint replaced, p50", f.Replace.P50, 5*time.Millisecond)
	}
}

// ofPair adds how a cold start grows.
func (s *scores) ofPair(pair [2]workload, f [2]figures) {
	name := fmt.Sprintf("%s to %s, ", pair[0], pair[1])
	s.number(name+"time", f[1].Cold.Seconds()/f[0].Cold.Seconds(), timeBar, " times")
	s.number(name+"memory", float64(f[1].Peak)/float64(f[0].Peak), memoryBar, " times")
}

// ofChurn adds the figures of constant change.
func (s *scores) ofChurn(f churnFigures) {
	s.number("constant change, cores", f.CPU.Seconds()/f.Took.Seconds(), 0.25, "")
	s.time("constant change, p99", f.P99, 50*time.Millisecond)
	wrong := float64(f.Sent - f.Committed)
	if !f.Holds {
		wrong++
	}
	s.number("constant change, lost", wrong, 0, "")
}

// report prints the table.
func (s *scores) report() error {
	if len(s.list) == 0 {
		return nil
	}
	fmt.Printf("\nMode %s beside the bars\n\n", barred)
	return s.write(os.Stdout)
}

func (s *scores) write(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "\tmeasured\tbar\t")
	for _, i := range s.list {
		verdict := ""
		if i.measured > i.bar {
			verdict = "OVER"
		}
		fmt.Fprintf(out, "%s\t%.2f%s\t%.2f%s\t%s\n", i.what, i.measured, i.unit, i.bar, i.unit, verdict)
	}
	return out.Flush()
}
