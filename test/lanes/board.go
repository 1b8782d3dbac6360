//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// refresh is how often a terminal shows progress.
const refresh = time.Second

// board has what all lanes are doing.
type board struct {
	out      io.Writer
	lanes    []lane
	terminal bool
	start    time.Time

	mu        sync.Mutex
	steps     []*stepOutcome
	abandoned []string
	drawn     int // lines of progress on the terminal
}

func newBoard(out io.Writer, lanes []lane, terminal bool) *board {
	return &board{out: out, lanes: lanes, terminal: terminal, start: time.Now()}
}

// run runs all lanes, side by side.
func (b *board) run(ctx context.Context) {
	done := make(chan struct{})
	var lanes, screen sync.WaitGroup
	for _, l := range b.lanes {
		lanes.Go(func() { b.runLane(ctx, l) })
	}
	if b.terminal {
		screen.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(refresh):
					b.update(b.draw)
				}
			}
		})
	}
	lanes.Wait()
	close(done)
	screen.Wait()
	b.update(func() {
		b.erase()
		if ctx.Err() != nil {
			b.abandoned = append(b.abandoned, "interrupted")
		}
	})
}

func (b *board) update(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *board) begin(l lane, st step) *stepOutcome {
	s := &stepOutcome{step: st, lane: l.name, start: time.Now()}
	b.update(func() { b.steps = append(b.steps, s) })
	return s
}

// take adds an event, and prints a package that ended.
func (b *board) take(s *stepOutcome, e event) {
	b.update(func() {
		if p := s.tests.take(e, time.Now()); p != nil && p.status != "?" {
			b.print(p.line())
		}
	})
}

func (b *board) finish(s *stepOutcome, err error) {
	b.update(func() {
		s.end, s.err = time.Now(), err
		if err != nil && s.optional != nil {
			if s.skipped = s.optional(s.output.String()); s.skipped != "" {
				s.err = nil
			}
		}
		if s.step.tests {
			return
		}
		word := "ok"
		switch {
		case s.err != nil:
			word = "FAIL"
		case s.skipped != "":
			word = "skip"
		}
		b.print(fmt.Sprintf("%-4s\t%s: %s\t%.3fs", word, s.lane, s.name, s.end.Sub(s.start).Seconds()))
	})
}

// print writes a line above the progress.
func (b *board) print(line string) {
	b.erase()
	fmt.Fprintln(b.out, line)
	b.draw()
}

// erase removes the progress from the terminal.
func (b *board) erase() {
	if b.drawn > 0 {
		fmt.Fprintf(b.out, "\x1b[%dA\x1b[J", b.drawn)
		b.drawn = 0
	}
}

// draw shows on a terminal where each lane is.
func (b *board) draw() {
	if !b.terminal {
		return
	}
	b.erase()
	for _, l := range b.lanes {
		i := slices.IndexFunc(b.steps, func(s *stepOutcome) bool { return s.lane == l.name && s.end.IsZero() })
		if i < 0 {
			continue
		}
		fmt.Fprintf(b.out, "\x1b[2m%s\x1b[0m\n", shorten(b.steps[i].progress(time.Now()), 110))
		b.drawn++
	}
}

// progress is how far a step is, and what takes it long.
func (s *stepOutcome) progress(now time.Time) string {
	text := fmt.Sprintf("%-8s %6s  %s", s.lane, clock(now.Sub(s.start)), s.name)
	if !s.step.tests {
		return text
	}
	ended, tests := 0, 0
	var slowest string
	var since time.Time
	for _, p := range s.tests.packages {
		if p.status != "" {
			ended++
		}
		tests += p.counts["pass"] + p.counts["fail"]
		if test, start := p.slowest(); test != "" && (slowest == "" || start.Before(since)) {
			slowest, since = fmt.Sprintf("%s %s", p.name[strings.LastIndexByte(p.name, '/')+1:], test), start
		}
	}
	text += fmt.Sprintf(", %d of %d packages, %d tests", ended, max(s.total, ended), tests)
	if slowest != "" {
		text += fmt.Sprintf("; %s for %s", slowest, clock(now.Sub(since)))
	}
	return text
}

func shorten(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}

// clock writes a duration as minutes and seconds.
func clock(d time.Duration) string {
	d = d.Round(time.Second)
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}
