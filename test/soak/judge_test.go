//go:build linux

package soak

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/testkit"
	"sluice/test/lab/scenario"
)

// maxListed limits how much is reported of each kind.
const maxListed = 8

// repeated is the latency of a connection whose first packet was lost, or which had
// to wait for the machine.
const repeated = 900 * time.Millisecond

// judge evaluates all losses of the chapter.
func (s *soak) judge() {
	s.Helper()
	var losses, moves, lies failures
	for _, p := range s.traffic.probes {
		attempts := p.take()
		s.report.made[kindOf(p)] += len(attempts)
		var before *attempt // the last one that was answered
		for _, a := range attempts {
			switch {
			case a.lost && s.excused(a.sent, a.done, func(w *window) bool { return w.loses }):
				s.report.excused(p)
			case a.lost:
				s.report.lost(p)
				losses.add("%s  lost: %v: %s, known %s", s.clock(a.sent), p, a.what, s.clock(a.done))
			case p.fresh && a.done.Sub(a.sent) > repeated && !s.excused(a.sent, a.done, func(w *window) bool { return w.loses }):
				s.report.slow.add("%s  %v took %v", s.clock(a.sent), p, a.done.Sub(a.sent).Round(time.Millisecond))
			case p.sticky && before != nil && a.by != before.by &&
				!s.excused(before.sent, a.done, func(w *window) bool { return w.forgets }):
				moves.add("%s  %v: session affinity led to %s, and now to %s", s.clock(a.sent), p, before.by, a.by)
			}
			if !a.lost {
				before = a
			}
		}
		s.judgeClaims(p, attempts, &lies)
	}
	s.truth.forget()
	s.report.lies += len(lies)
	if examples := slices.Concat(losses.first(), moves.first(), lies.first()); len(examples) > 0 {
		s.Errorf("%d lost, %d moved, %d times it was said that all is well:\n%s\n%s",
			len(losses), len(moves), len(lies), strings.Join(examples, "\n"), s.story())
	}
	s.windows = slices.DeleteFunc(s.windows, func(w *window) bool { return time.Since(w.until) > testkit.Scaled(2*attemptsLimit) })
}

// failures describes failures of one kind.
type failures []string

func (c *failures) add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

// first returns the first few.
func (c failures) first() []string { return c[:min(len(c), maxListed)] }

// excused reports whether a window of a kind was open during a time.
func (s *soak) excused(from, until time.Time, kind func(*window) bool) bool {
	return slices.ContainsFunc(s.windows, func(w *window) bool {
		return kind(w) && !until.Before(w.from) && !from.After(w.until)
	})
}

// judgeClaims compares the proxy's own status with what happened to packets.
func (s *soak) judgeClaims(p *probe, attempts []*attempt, lies *failures) {
	s.Helper()
	if !p.fresh || p.want != "answered" {
		return
	}
	for _, run := range lossRuns(attempts) {
		for _, c := range s.truth.claims() {
			if c.about != nil && c.about != p || c.from.Sub(run.first) < s.truthLimit() || run.last.Before(c.until) {
				continue
			}
			if s.report.early++; c.from.Sub(run.first) < s.truthLimit()+testkit.Scaled(truthSlack) {
				continue
			}
			lies.add("%s  %s, while %v has been lost since %s until %s:\n%s",
				s.clock(c.from), c.says, p, s.clock(run.first), s.clock(run.last), c.transcript)
		}
	}
}

// lossRun is a period in which all attempts were lost, by when they were sent.
type lossRun struct{ first, last time.Time }

func lossRuns(attempts []*attempt) []lossRun {
	var runs []lossRun
	before := false
	for _, a := range attempts {
		if a.lost && !before {
			runs = append(runs, lossRun{first: a.sent})
		}
		if a.lost {
			runs[len(runs)-1].last = a.sent
		}
		before = a.lost
	}
	return runs
}

// compareWithFresh compares the kernel with that of a fresh proxy with the same
// objects and configuration.
func (s *soak) compareWithFresh() {
	s.Helper()
	s.report.comparisons++
	s.must(s.catchUp())
	fresh, err := newNode(s.api, s.mode, s.settings)
	s.must(err)
	defer func() {
		if err := fresh.close(); err != nil {
			s.Error(err)
		}
	}()
	s.must(fresh.start(s.ctx))
	s.must(fresh.follows(s.ctx, podNames[s.beacons%len(podNames)], followLimit))
	lines := 0
	err = testkit.Poll(compareLimit, func() error {
		want, err := fresh.rules(s.ctx)
		s.must(err)
		have, err := s.rules(s.ctx)
		s.must(err)
		stray, err := s.strayRules(s.ctx)
		s.must(err)
		if lines = len(want); slices.Equal(want, have) && len(stray) == 0 {
			return nil
		}
		return fmt.Errorf("a fresh proxy has (-), and this one (+):\n%s\nleft by other modes:\n%s",
			differences(want, have), strings.Join(stray, "\n"))
	})
	if err != nil {
		s.Errorf("in %s mode %v\n%s", s.mode, err, s.story())
		return
	}
	s.note("compared in %s mode: the kernel holds what a fresh proxy writes, %d lines", s.mode, lines)
	if scenario.Modes[s.mode].InProcess {
		return // it forwards connections, and a UDP client stays for two minutes
	}
	if err := s.needsNoMoreThan(fresh); err != nil {
		s.Errorf("in %s mode %v\n%s", s.mode, err, s.story())
	}
	s.report.compared(s.mode, lines)
}

// differences returns the lines that only one of two has.
func differences(want, have []string) string {
	return cmp.Diff(strings.Join(want, "\n"), strings.Join(have, "\n"))
}
