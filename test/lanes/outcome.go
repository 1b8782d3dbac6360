//go:build linux

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// outcome is what the events of a go test said so far.
type outcome struct {
	packages map[string]*packageOutcome
	stray    strings.Builder // output that belongs to no package
}

// packageOutcome is how the tests of a package went.
type packageOutcome struct {
	name    string
	status  string // ok, FAIL or ?, once it ended
	cached  bool
	elapsed time.Duration
	counts  map[string]int // of tests, by action: pass, fail, skip

	running map[string]time.Time        // tests, by name, since when
	output  map[string]*strings.Builder // by test; that of the package has no name
	failed  []string                    // tests
}

func (o *outcome) of(name string) *packageOutcome {
	if o.packages == nil {
		o.packages = map[string]*packageOutcome{}
	}
	p := o.packages[name]
	if p == nil {
		p = &packageOutcome{name: name, counts: map[string]int{}, running: map[string]time.Time{}, output: map[string]*strings.Builder{}}
		o.packages[name] = p
	}
	return p
}

// take adds an event, and returns the package if it ended with that.
func (o *outcome) take(e event, now time.Time) *packageOutcome {
	switch {
	case e.Action == "build-output":
		o.of(e.ImportPath).print("", e.Output)
		return nil
	case e.Action == "build-fail":
		p := o.of(e.ImportPath)
		p.status = "FAIL"
		return nil
	case e.Package == "":
		o.stray.WriteString(e.Output)
		return nil
	}
	return o.of(e.Package).take(e, now)
}

func (p *packageOutcome) take(e event, now time.Time) *packageOutcome {
	switch e.Action {
	case "run", "cont":
		p.running[e.Test] = now
	case "pause":
		delete(p.running, e.Test)
	case "output":
		p.print(e.Test, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			p.end(e)
			return p
		}
		p.endTest(e)
	}
	return nil
}

func (p *packageOutcome) print(test, text string) {
	if p.output[test] == nil {
		p.output[test] = &strings.Builder{}
	}
	p.output[test].WriteString(text)
}

// endTest forgets the output of a test that passed.
func (p *packageOutcome) endTest(e event) {
	delete(p.running, e.Test)
	p.counts[e.Action]++
	if e.Action == "fail" {
		p.failed = append(p.failed, e.Test)
	} else {
		delete(p.output, e.Test)
	}
}

func (p *packageOutcome) end(e event) {
	p.elapsed = time.Duration(e.Elapsed * float64(time.Second))
	own := p.output[""]
	p.cached = own != nil && strings.Contains(own.String(), "\t(cached)")
	switch e.Action {
	case "fail":
		p.status = "FAIL"
	case "skip":
		p.status = "?"
	default:
		p.status = "ok"
		p.output = nil
	}
	p.running = nil
}

// line is how go test without -json sums up a package.
func (p *packageOutcome) line() string {
	switch {
	case p.cached:
		return fmt.Sprintf("%-4s\t%s\t(cached)", p.status, p.name)
	case p.status == "?":
		return fmt.Sprintf("%-4s\t%s\t[no test files]", p.status, p.name)
	}
	return fmt.Sprintf("%-4s\t%s\t%.3fs", p.status, p.name, p.elapsed.Seconds())
}

// slowest returns the test that has been running for the longest time, without those that
// only wait for their parts.
func (p *packageOutcome) slowest() (test string, since time.Time) {
	for name, start := range p.running {
		waits := false
		for other := range p.running {
			waits = waits || strings.HasPrefix(other, name+"/")
		}
		if !waits && (test == "" || start.Before(since)) {
			test, since = name, start
		}
	}
	return test, since
}

// failure is the output of what failed: of tests, or of a package that did not build or ended
// in the middle of its tests.
func (p *packageOutcome) failure() string {
	var out strings.Builder
	for _, test := range slices.Sorted(maps.Keys(p.output)) {
		out.WriteString(p.output[test].String())
	}
	return out.String()
}

// bySlowness sorts packages, the slowest first.
func bySlowness(a, b *packageOutcome) int { return cmp.Compare(b.elapsed, a.elapsed) }
