//go:build linux

package soak

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/observe/verdict"
)

// What the suite itself guarantees.

func TestLossesAreExcusedInWindows(t *testing.T) {
	start := time.Now()
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	s := &soak{windows: []*window{{name: "kill -9", from: at(0), until: at(10)}, {name: "tampering", from: at(2), until: at(3), loses: true}}}
	loses := func(w *window) bool { return w.loses }
	for _, tc := range []struct {
		sent, done float64
		want       bool
	}{{0, 1.9, false}, {1, 2.5, true}, {2.2, 2.4, true}, {2.9, 5, true}, {3.1, 4, false}} {
		if got := s.excused(at(tc.sent), at(tc.done), loses); got != tc.want {
			t.Errorf("from %v to %v: %v", tc.sent, tc.done, got)
		}
	}
}

func TestRunsOfLossesEndWithAnAnswer(t *testing.T) {
	start := time.Now()
	var attempts []*attempt
	for i, lost := range []bool{false, true, true, false, true, false} {
		attempts = append(attempts, &attempt{sent: start.Add(time.Duration(i) * time.Second), lost: lost})
	}
	var got [][2]float64
	for _, r := range lossRuns(attempts) {
		got = append(got, [2]float64{r.first.Sub(start).Seconds(), r.last.Sub(start).Seconds()})
	}
	if diff := cmp.Diff([][2]float64{{1, 2}, {4, 4}}, got); diff != "" {
		t.Error(diff)
	}
}

// seconds returns times in seconds after a beginning.
func seconds(start time.Time, spans []span) (out [][2]float64) {
	for _, s := range spans {
		out = append(out, [2]float64{s.from.Sub(start).Seconds(), s.until.Sub(start).Seconds()})
	}
	return out
}

func TestOneLossInTwentyIsNoFailure(t *testing.T) {
	start := time.Now()
	attemptsOf := func(lost ...int) (all []*attempt) {
		for i := range 100 {
			all = append(all, &attempt{sent: start.Add(time.Duration(i) * time.Second), lost: slices.Contains(lost, i)})
		}
		return all
	}
	for _, tc := range []struct {
		lost []int
		want [][2]float64
	}{
		{nil, nil},
		{[]int{5, 30, 60}, nil},
		{[]int{5, 24}, [][2]float64{{5, 24}}},
		{[]int{5, 25}, nil},
		{[]int{5, 15, 30, 70, 71, 72}, [][2]float64{{5, 15}, {15, 30}, {70, 72}}},
	} {
		if diff := cmp.Diff(tc.want, seconds(start, failingSpans(attemptsOf(tc.lost...)))); diff != "" {
			t.Errorf("lost %v: %s", tc.lost, diff)
		}
	}
	if n, lost := between(attemptsOf(5, 15), start.Add(6*time.Second), start.Add(20*time.Second)); n != 15 || lost != 1 {
		t.Errorf("there are %d attempts, of which %d were lost", n, lost)
	}
}

func TestStatementsLastUntilAnotherOrSilence(t *testing.T) {
	start := time.Now()
	v := &voice{}
	for _, at := range []float64{0, 1, 2, 3, 6, 7, 8} { // 2 says something else, and nothing is said at 4 and 5
		from := start.Add(time.Duration(at * float64(time.Second)))
		word := verdict.Works
		if at == 2 {
			word = verdict.NoAnswer
		}
		v.statements = append(v.statements, statement{from: from, until: from.Add(500 * time.Millisecond), words: map[subject]verdict.Word{{number: 1}: word}})
	}
	streaks := v.streaks(func(x statement) bool { return x.words[subject{number: 1}] == verdict.Works })
	if diff := cmp.Diff([][2]float64{{0.5, 1}, {3.5, 3}, {6.5, 8}}, seconds(start, streaks)); diff != "" {
		t.Error(diff)
	}
	if got := (span{start, start.Add(7 * time.Second)}).overlap(streaks[2]); got != 500*time.Millisecond {
		t.Errorf("they overlap for %v", got)
	}
}

const listed = `table ip NAME { # handle 1
	map services { # handle 2
		type ipv4_addr . inet_proto . inet_service : verdict
		counter
		elements = { 10.96.0.1 . tcp . 80 counter packets COUNT bytes 60 : goto lb-1,
			     10.96.0.2 . udp . 80 counter packets 0 bytes 0 : drop }
	}

	map endpoints { # handle 3
		type ipv4_addr . inet_proto . inet_service . integer : ipv4_addr . inet_service
		elements = { 10.96.0.1 . tcp . 80 . INDEX : 10.244.1.1 . 8080 }
	}

	map clients-00 { # handle 4
		type ipv4_addr : ipv4_addr
		flags dynamic,timeout
		elements = { 10.244.1.9 timeout 3h expires 2h59m : 10.244.1.1 }
	}

	chain prerouting { # handle 5
		type nat hook prerouting priority dstnat; policy POLICY;
		jump dispatch # handle 6
	}
}
`

func TestListingsAreNormalized(t *testing.T) {
	list := func(name, count, index, policy string) []string {
		text := strings.NewReplacer("NAME", name, "COUNT", count, "INDEX", index, "POLICY", policy).Replace(listed)
		return parseTable("ip", name, text).normal()
	}
	first := list("sluice", "0", "0", "accept")
	if len(first) != 9 {
		t.Errorf("there are %d lines:\n%s", len(first), strings.Join(first, "\n"))
	}
	if diff := cmp.Diff(first, list("sluice-b", "7", "3", "accept")); diff != "" {
		t.Errorf("what only looks different is:\n%s", diff)
	}
	if slices.Equal(first, list("sluice", "0", "0", "drop")) {
		t.Error("another policy is not seen")
	}
	table := parseTable("ip", "sluice", listed)
	if got := elementKey(table.sets[0].elements[0]); got != "10.96.0.1 . tcp . 80" {
		t.Errorf("the key of an element is %q", got)
	}
	if got := table.chains[0].rules; len(got) != 1 || got[0] != (rule{"jump dispatch", "6"}) {
		t.Errorf("rules are %+v", got)
	}
}
