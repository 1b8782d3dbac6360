//go:build linux

package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// report is printed at the end.
type report struct {
	kinds       map[string]int
	made        map[string]int
	excusedLost map[string]int
	unexcused   map[string]int
	slow        failures
	times       map[string][]time.Duration
	changes     atomic.Int64
	early, lies int // that all is well, after the limit and after the slack
	comparisons int
	lines       map[string]int
	seen        map[string]struct{} // times that were recorded
}

func newReport() *report {
	return &report{kinds: map[string]int{}, made: map[string]int{}, excusedLost: map[string]int{}, unexcused: map[string]int{},
		times: map[string][]time.Duration{}, lines: map[string]int{}, seen: map[string]struct{}{}}
}

func (r *report) count(mode, name string) { r.kinds[fmt.Sprintf("%-15s %s", mode, name)]++ }

// follow records how long something took.
func (r *report) follow(what string, d time.Duration) { r.times[what] = append(r.times[what], d) }

func (r *report) compared(mode string, lines int) { r.lines[mode] = lines }

// kindOf returns the group of a probe in the report.
func kindOf(p *probe) string {
	how, _, _ := strings.Cut(p.name, ",")
	family := "IPv4"
	if p.flow.To.Addr().Is6() {
		family = "IPv6"
	}
	return fmt.Sprintf("%s %s, %s", p.flow.Protocol, family, how)
}

func (r *report) lost(p *probe) { r.unexcused[kindOf(p)]++ }

func (r *report) excused(p *probe) { r.excusedLost[kindOf(p)]++ }

func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %d changes of objects\n\nadversities\n", *seed, r.changes.Load())
	r.writeKinds(&b)
	fmt.Fprintf(&b, "\nconnections, datagrams and questions, and how many were lost: while rules were broken, and otherwise\n")
	for _, kind := range sortedKeys(r.made) {
		fmt.Fprintf(&b, "  %8d %6d %6d  %s\n", r.made[kind], r.excusedLost[kind], r.unexcused[kind], kind)
	}
	fmt.Fprintf(&b, "%d new ones took longer than %v while rules were in order\n", len(r.slow), repeated)
	for _, line := range r.slow.first() {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	r.writeTimes(&b)
	fmt.Fprintf(&b, "\nthe proxy said %d times that all is well although packets were lost for longer than %v, and %d times after %v (in ipvs mode %v later)\n",
		r.early, truthTime, r.lies, truthTime+truthSlack, ipvsNotices)
	fmt.Fprintf(&b, "the kernel was compared with that of a fresh proxy %d times; lines: %v\n", r.comparisons, r.lines)
	return b.String()
}

// writeKinds writes how often what happened.
func (r *report) writeKinds(b *strings.Builder) {
	for _, name := range sortedKeys(r.kinds) {
		fmt.Fprintf(b, "  %6d  %s\n", r.kinds[name], name)
	}
}

func (r *report) writeTimes(b *strings.Builder) {
	fmt.Fprintf(b, "\ntimes: number, median, p99, longest\n")
	for _, what := range sortedKeys(r.times) {
		all := slices.Sorted(slices.Values(r.times[what]))
		at := func(share int) time.Duration { return percentile(all, share).Round(time.Millisecond) }
		fmt.Fprintf(b, "  %6d %8v %8v %8v  %s\n", len(all), at(50), at(99), at(100), what)
	}
}

// percentile returns the value below which a share of sorted ones are, in percent.
func percentile(sorted []time.Duration, share int) time.Duration {
	return sorted[(len(sorted)-1)*share/100]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
