//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice/internal/observe/verdict"
	"sluice/internal/testkit"
	"sluice/test/fakeapi"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// Requirements of the verdict, extended by a busy machine: the times after which a word is
// untrue. Traffic is looked at each second, and an attempt counts as unanswered after another.
const (
	verdictTime = 5 * time.Second
	// verdictGap is how long the proxy may not answer before it is not known what it would
	// have said.
	verdictGap = 2 * time.Second
	// faultExtra is how much longer faults last, at most, than it takes until they are noticed;
	// in a long run it is longFaultExtra.
	faultExtra     = 2 * time.Second
	longFaultExtra = 10 * time.Second
	// clientTime is after how long a client gives up. To have waited for lateTime is a failure,
	// too.
	clientTime = 2500 * time.Millisecond
	lateTime   = time.Second
)

// The Services of a trial.
const (
	spread = iota + 1 // on three pods
	single            // on a pod of another node, with node ports
	near              // on a pod of this node, with external traffic policy Local
)

// Whatever happens to endpoints, to the node or to the source, no Service is said to work while
// clients get no answer, and none is said to fail while all of them do.
func TestVerdicts(t *testing.T) {
	testkit.NotShort(t, "it breaks the network for a while")
	modes := slices.DeleteFunc(scenario.ModesFor(t.Name()), func(m string) bool {
		return !slices.Contains(scenario.SupportedModeNames(t.Context()), m)
	})
	if *mode != "" {
		modes = []string{*mode}
	}
	for _, m := range modes {
		t.Run(m, func(t *testing.T) {
			t.Parallel()
			runTrial(t, m)
		})
	}
}

// trial is a proxy whose verdicts are compared with packets while faults happen.
type trial struct {
	*testing.T
	*node
	ctx        context.Context
	rng        *rand.Rand
	population *population
	traffic    *traffic
	said       *statements
	report     *report
	diary

	// records are the attempts so far, by probe, and away when there was no API server.
	records map[*probe][]*attempt
	away    []span
}

func runTrial(t *testing.T, m string) {
	deck := faultDeck(m)
	if len(deck.all) == 0 {
		t.Skipf("no fault is called %q", *only)
	}
	server := fakeapi.New()
	n, err := newNode(server, m, firstSettings())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &trial{
		T: t, node: n, ctx: ctx, rng: rand.New(rand.NewPCG(*seed, 2)), report: newReport(),
		population: &population{server: server, services: trialServices()}, diary: diary{began: time.Now()}, records: map[*probe][]*attempt{},
	}
	t.Cleanup(func() {
		cancel()
		if s.traffic != nil {
			s.traffic.stop()
		}
		if s.said != nil {
			s.said.stop()
		}
		if t.Failed() {
			t.Logf("log of the proxy:\n%s", n.lastLines())
		}
		if err := errors.Join(server.Close(), n.close()); err != nil {
			t.Error(err)
		}
	})
	s.must(s.population.set(func(map[int]service) {}))
	s.must(s.start(ctx))
	s.must(s.follows(ctx, "pod1", followLimit))
	s.traffic = startTraffic(ctx, s.lab, addTrial)
	s.said = listen(ctx, n)
	s.must(s.await("all is well at the beginning", s.well))
	for end := time.Now().Add(*duration); time.Now().Before(end) && (!t.Failed() || *survey); {
		s.fault(deck.draw(s.rng))
		s.turnPage()
	}
	t.Log(s.report.verdicts(s.mode))
}

func trialServices() map[int]service {
	tcpOnly := func(change func(*corev1.Service)) func(*corev1.Service) {
		return func(s *corev1.Service) {
			change(s)
			s.Spec.Ports = s.Spec.Ports[:1]
		}
	}
	return map[int]service{
		spread: newService(spread, []string{"pod1", "pod2", "remote1"}, tcpOnly(balanced(spread, unchanged))),
		single: newService(single, []string{"remote2"}, tcpOnly(withNodePorts(single))),
		near:   newService(near, []string{"pod2"}, tcpOnly(balanced(near, local(near)))),
		beacon: newService(beacon, []string{"pod1"}, unchanged),
	}
}

// addTrial adds the probes of a trial: clients of each kind, to each Service, in each family.
func addTrial(t *traffic) {
	for family := range families {
		for number, outside := range map[int]netip.AddrPort{
			spread: netip.AddrPortFrom(externalIP(spread)[family], 80),
			single: netip.AddrPortFrom(pair{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}[family], nodePort(single, lab.TCP)),
			near:   netip.AddrPortFrom(externalIP(near)[family], 80),
		} {
			inside := netip.AddrPortFrom(clusterIP(number)[family], 80)
			for from, flow := range map[string]lab.Flow{
				"pod":     {From: "pod3", To: inside},
				"node":    {From: "node1", To: inside},
				"outside": {From: "client", To: outside},
			} {
				flow.Protocol, flow.Timeout = lab.TCP, clientTime
				p := t.probe(subject{number, from}.String(), flow)
				p.about, p.fresh, p.period = subject{number, from}, true, 2*probePeriod/3
				p.ask = func(ctx context.Context) lab.Outcome { return t.lab.Connect(ctx, flow) }
			}
		}
	}
}

// subject is what a verdict is about: a Service, for a kind of client, or for all if that is "".
type subject struct {
	number int
	from   string
}

func (s subject) String() string {
	if s.from == "" {
		return fmt.Sprint("Service s", s.number)
	}
	return fmt.Sprint("Service s", s.number, " from ", s.from)
}

// includes reports whether a connection counts for a verdict.
func (s subject) includes(o subject) bool {
	return s.number == o.number && (s.from == "" || s.from == o.from)
}

// subjects are those with verdicts.
func subjects() (all []subject) {
	for _, number := range []int{spread, single, near} {
		for _, from := range []string{"", "pod", "node", "outside"} {
			all = append(all, subject{number, from})
		}
	}
	return all
}

func (s *trial) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v\n%s", err, s.story())
	}
}

// fault makes something fail and mends it, and then evaluates what was said.
func (s *trial) fault(f fault) {
	s.Helper()
	extra, patient := faultExtra, s.rng.IntN(3) == 0
	if longRun() {
		extra, patient = longFaultExtra, s.rng.IntN(3) > 0
	}
	s.report.count(s.mode, f.name)
	s.note("%s", f.name)
	mend, err := f.begin(s)
	if mend == nil {
		mend = func() error { return nil }
	}
	if err == nil && f.hurts {
		err = s.await("clients to fail", s.failing)
	}
	if err == nil {
		s.awaitWord("noticed", s.noticed)
		time.Sleep(upTo(s.rng, extra))
	}
	s.must(errors.Join(err, mend()))
	s.note("mended")
	mended := time.Now()
	s.must(s.await("clients to be answered", func() error { return s.answered(mended) }))
	s.awaitWord("no longer said to fail", s.notRed)
	time.Sleep(upTo(s.rng, extra))
	if patient { // else the next fault meets what is believed of this one
		s.must(s.await("all to be well again", s.well))
		s.report.follow("until nothing is said against a Service any more", time.Since(mended))
	}
	s.must(s.traffic.drain())
	s.judge()
	testkit.Progress("%s: %s", s.mode, s.story())
}

// awaitWord waits until what is said is true. If that takes too long, judge tells: it goes on for
// longer than judge allows.
func (s *trial) awaitWord(what string, holds func() error) {
	if err := testkit.Poll(s.said.slowest()+verdictTime, holds); err != nil {
		what = fmt.Sprintf("not %s: %v", what, err)
	}
	s.note("%s", what)
}

func (s *trial) await(what string, holds func() error) error {
	if err := testkit.Poll(testkit.Timeout, holds); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// fails reports whether too many connections about a subject seem to fail. What was sent just now
// may still be answered.
func (s *trial) fails(about subject) bool {
	late := time.Now().Add(-testkit.Scaled(lateTime))
	var all []*attempt
	for _, p := range s.traffic.probes {
		if about.includes(p.about) {
			all = append(all, p.copies(late.Add(-testkit.Scaled(clientTime)))...)
		}
	}
	all = slices.DeleteFunc(all, func(a *attempt) bool { return a.sent.After(late) })
	for _, a := range all {
		a.lost = a.lost || a.done.IsZero()
	}
	slices.SortFunc(all, func(a, b *attempt) int { return a.sent.Compare(b.sent) })
	return tooMany(all[max(0, len(all)-attemptsJudged):])
}

func (s *trial) failing() error {
	if !slices.ContainsFunc(subjects(), s.fails) {
		return errors.New("no Service loses connections")
	}
	return nil
}

func (s *trial) noticed() error {
	for _, about := range subjects() {
		if word := s.said.last(about); s.fails(about) && word == verdict.Works {
			return fmt.Errorf("%v is said to work", about)
		}
	}
	return nil
}

// answered reports whether the last few connections since a time were answered.
func (s *trial) answered(since time.Time) error {
	const few = 3
	for _, p := range s.traffic.probes {
		over := slices.DeleteFunc(p.copies(since), func(a *attempt) bool { return a.done.IsZero() })
		for _, a := range over[max(0, len(over)-few):] {
			if a.lost {
				return fmt.Errorf("%v: %s", p, a.what)
			}
		}
		if len(over) < few {
			return fmt.Errorf("%v: %d connections so far", p, len(over))
		}
	}
	return nil
}

func (s *trial) notRed() error {
	for _, about := range subjects() {
		if word := s.said.last(about); word.Failing() {
			return fmt.Errorf("%v is said to have %s", about, word)
		}
	}
	return nil
}

// well reports whether everything is said to work.
func (s *trial) well() error {
	for _, about := range subjects() {
		if word := s.said.last(about); word != verdict.Works {
			return fmt.Errorf("%v: %q", about, word)
		}
	}
	return nil
}

// judge compares all that was said with what happened to connections.
func (s *trial) judge() {
	s.Helper()
	late := s.said.slowest() / (verdictTime / lateTime)
	for _, p := range s.traffic.probes {
		attempts := p.take()
		s.records[p] = append(s.records[p], attempts...)
		s.report.made[kindOf(p)] += len(attempts)
		for _, a := range attempts {
			if a.lost = a.lost || a.done.Sub(a.sent) > late; a.lost {
				s.report.excused(p)
			}
		}
	}
	var lies failures
	for _, voice := range s.said.voices() {
		for _, about := range subjects() {
			s.judgeSubject(voice, about, &lies)
		}
		for _, away := range s.away {
			for _, streak := range voice.streaks(func(x statement) bool { return x.proxy == verdict.Serving }) {
				if d := away.overlap(streak); d > voice.limit {
					lies.add("%s  %s: the proxy is said to serve for %v, without an API server", s.clock(streak.from), voice.name, d)
				}
			}
		}
	}
	if len(lies) > 0 {
		s.Errorf("%d untrue statements:\n%s\n%s", len(lies), strings.Join(lies.first(), "\n"), s.story())
		clear(s.records) // they have been told
		s.said.forget()
	}
	s.away = nil
}

func (s *trial) judgeSubject(voice *voice, about subject, lies *failures) {
	if voice.services && about.from != "" {
		return
	}
	var attempts []*attempt
	for p, records := range s.records {
		if about.includes(p.about) {
			attempts = append(attempts, records...)
		}
	}
	slices.SortFunc(attempts, func(a, b *attempt) int { return a.sent.Compare(b.sent) })
	spans := failingSpans(attempts)
	for _, streak := range voice.streaks(func(x statement) bool { return x.words[about] == verdict.Works }) {
		for _, span := range spans {
			if d := span.overlap(streak); d > voice.limit {
				lies.add("%s  %s says for %v that %v works, while connections fail from %s to %s", s.clock(streak.from), voice.name, d, about, s.clock(span.from), s.clock(span.until))
			}
		}
	}
	for _, x := range voice.statements {
		if !x.words[about].Failing() {
			continue
		}
		// It may have been noticed before the first client fails.
		soon := voice.limit / (verdictTime / lateTime)
		if n, lost := between(attempts, x.from.Add(-voice.limit), x.until.Add(soon)); n >= attemptsJudged/2 && lost == 0 {
			lies.add("%s  %s says %s of %v, while all of %d connections were answered", s.clock(x.from), voice.name, x.words[about], about, n)
		}
	}
	if about.from == "" {
		s.measure(voice, about, spans)
	}
}

// measure notes how long it took until failures were told.
func (s *trial) measure(voice *voice, about subject, spans []span) {
	for _, span := range spans {
		i := slices.IndexFunc(voice.statements, func(x statement) bool { return x.from.After(span.from) && x.words[about] != verdict.Works })
		if i < 0 || voice.statements[i].from.After(span.until.Add(voice.limit)) {
			continue
		}
		// It may have been said of a fault before.
		if i > 0 && voice.statements[i-1].words[about] == verdict.Works {
			s.report.noticed(voice.name+", until failures are told", span.from, voice.statements[i].until)
		}
	}
}

// between counts the attempts sent in a time, and those of them that were lost, or whose first
// packet was: a client that waits has not been answered.
func between(attempts []*attempt, from, until time.Time) (n, lost int) {
	at, _ := slices.BinarySearchFunc(attempts, from, func(a *attempt, t time.Time) int { return a.sent.Compare(t) })
	for _, a := range attempts[at:] {
		if a.sent.After(until) {
			break
		}
		n++
		if a.lost || a.done.Sub(a.sent) > repeated {
			lost++
		}
	}
	return n, lost
}

// span is a time.
type span struct{ from, until time.Time }

// overlap returns how long two spans have in common, at most 0 for not at all.
func (s span) overlap(o span) time.Duration {
	from := slices.MaxFunc([]time.Time{s.from, o.from}, time.Time.Compare)
	until := slices.MinFunc([]time.Time{s.until, o.until}, time.Time.Compare)
	return until.Sub(from)
}

// attemptsJudged is how many attempts in a row tell whether too many fail: more than one of
// them, which is five percent.
const attemptsJudged = 20

func tooMany(attempts []*attempt) bool {
	lost := 0
	for _, a := range attempts {
		if a.lost {
			lost++
		}
	}
	return lost*20 > attemptsJudged
}

// failingSpans returns when more than five percent of attempts failed.
func failingSpans(attempts []*attempt) (spans []span) {
	open := false
	for i, a := range attempts {
		last := attempts[max(0, i+1-attemptsJudged) : i+1]
		if !tooMany(last) {
			open = false
			continue
		}
		if !open {
			first := last[slices.IndexFunc(last, func(a *attempt) bool { return a.lost })]
			spans = append(spans, span{from: first.sent})
			open = true
		}
		if a.lost {
			spans[len(spans)-1].until = a.sent
		}
	}
	return spans
}

// verdicts is the report on verdicts.
func (r *report) verdicts(mode string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s mode\n\nfaults\n", *seed, mode)
	r.writeKinds(&b)
	fmt.Fprintf(&b, "\nconnections, and how many failed\n")
	for _, kind := range sortedKeys(r.made) {
		fmt.Fprintf(&b, "  %8d %6d  %s\n", r.made[kind], r.excusedLost[kind], kind)
	}
	r.writeTimes(&b)
	return b.String()
}

// noticed records a time once, though it is seen again at each evaluation.
func (r *report) noticed(what string, from, until time.Time) {
	key := fmt.Sprint(what, from.UnixNano())
	if _, known := r.seen[key]; !known {
		r.seen[key] = struct{}{}
		r.follow(what, until.Sub(from))
	}
}
