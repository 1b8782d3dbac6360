//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/test/fakeapi"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

var (
	seed     = flag.Uint64("seed", 12, "seed of what happens when")
	duration = flag.Duration("time", 18*time.Second, "how long disruptions go on")
	survey   = flag.Bool("survey", false, "do not stop after a chapter with failures")
	only     = flag.String("only", "", "disruptions, faults and hostilities to draw from, by the beginnings of their names, separated by commas")
	pace     = flag.Int("pace", 1, "how many times as long to wait between two connections of a kind, and between changes, for slow machines")
	mode     = flag.String("mode", "", "mode to stay in, one of "+strings.Join(scenario.ModeNames(), ", "))
)

// longRun reports whether there is time for more than a glance.
func longRun() bool { return *duration >= time.Minute }

// Requirements of the proxy. A busy machine extends the limits; the report has the
// actual times.
const (
	repairTime    = 8 * time.Second        // from tampering until the rules are as before
	followLimit   = 60 * time.Second       // from a change until it is in force, also after trouble
	truthTime     = time.Second            // of loss, after which no report may say that all is well
	truthSlack    = 3 * time.Second        // that the machine may add to it
	sweepTime     = 500 * time.Millisecond // after a repair, until what was lost on its way is gone from connection tracking
	chapterTime   = 45 * time.Second       // after which all is compared
	churnPeriod   = 120 * time.Millisecond
	longestPause  = 300 * time.Millisecond
	compareLimit  = 15 * time.Second
	attemptsLimit = 30 * time.Second
)

// ipvsNotices is how long it takes at most until a change of IPVS or of a route is noticed:
// the kernel does not notify anyone, so all is compared in each syncPeriod.
const ipvsNotices = 30 * time.Second

func (s *soak) repairLimit() time.Duration {
	if s.mode == "ipvs" {
		return testkit.Scaled(repairTime) + ipvsNotices
	}
	return testkit.Scaled(repairTime)
}

func (s *soak) truthLimit() time.Duration {
	if s.mode == "ipvs" {
		return truthTime + ipvsNotices
	}
	return truthTime
}

func TestMain(m *testing.M) {
	flag.Parse()
	for _, name := range strings.Split(*only, ",") {
		if !slices.ContainsFunc(kinds(), func(kind string) bool { return strings.HasPrefix(kind, name) }) {
			fmt.Fprintf(os.Stderr, "nothing is called %q: have %s\n", name, strings.Join(kinds(), ", "))
			os.Exit(2)
		}
	}
	if err := lab.Sweep(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(m.Run())
}

// kinds are the names of all that can be asked for.
func kinds() (all []string) {
	for _, d := range disruptions() {
		all = append(all, d.name)
	}
	for _, f := range faults() {
		all = append(all, f.name)
	}
	for _, h := range hostilities() {
		all = append(all, h.name)
	}
	return all
}

// Whatever happens to the proxy, connections are lost only where the test broke the
// rules, and the rules are repaired soon.
func TestDisruptions(t *testing.T) {
	testkit.NotShort(t, "it disrupts the proxy for a while")
	t.Logf("seed %d (repeat with -seed)", *seed)
	s := newSoak(t)
	s.begin()
	deck := s.deck()
	for end := time.Now().Add(*duration); ; {
		chapter := min(chapterTime, time.Until(end))
		s.chapter(deck, time.Now().Add(chapter))
		if time.Now().After(end) || t.Failed() && !*survey {
			break
		}
	}
	t.Log(s.report.String())
}

// soak is a proxy under disruption.
type soak struct {
	*testing.T
	*node
	ctx        context.Context
	rng        *rand.Rand
	population *population
	traffic    *traffic
	truth      *truth
	report     *report
	beacons    int

	// quiet is held while no object may change.
	quiet   sync.Mutex
	windows []*window
	diary
}

// window is the time of a disruption.
type window struct {
	name        string
	from, until time.Time
	loses       bool // packets may be lost
	forgets     bool // clients may lose their endpoint
}

func newSoak(t *testing.T) *soak {
	server := fakeapi.New()
	first := "nftables"
	if *mode != "" {
		first = *mode
	}
	n, err := newNode(server, first, firstSettings())
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{T: t, node: n, rng: rand.New(rand.NewPCG(*seed, 0)), population: newPopulation(server), report: newReport(), diary: diary{began: time.Now()}}
	ctx, cancel := context.WithCancel(t.Context())
	s.ctx = ctx
	t.Cleanup(func() {
		cancel()
		if s.traffic != nil {
			s.traffic.stop()
			s.truth.stop()
		}
		if t.Failed() {
			t.Logf("logs of the last proxies:\n%s\n%s", strings.Join(n.logs, "--\n"), n.lastLines())
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// lastLines returns the last lines of the running proxy's log.
func (n *node) lastLines() string {
	if n.proxy == nil {
		return "no proxy runs"
	}
	n.keepLog()
	return n.logs[len(n.logs)-1]
}

// begin starts the proxy, and then the traffic and the changes.
func (s *soak) begin() {
	s.Helper()
	rng := rand.New(rand.NewPCG(*seed, 1))
	for range maxPassing {
		s.must(s.population.churn(rng))
	}
	s.must(s.start(s.ctx))
	s.must(s.catchUp())
	s.traffic = startTraffic(s.ctx, s.lab, (*traffic).addAll)
	s.truth = watchTruth(s.ctx, s.node, s.traffic)
	s.traffic.workers.Go(func() { s.churn(rng) })
}

func (s *soak) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v\n%s", err, s.story())
	}
}

// churn changes objects until the end.
func (s *soak) churn(rng *rand.Rand) {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(churnPeriod * time.Duration(*pace)):
		}
		s.quiet.Lock()
		err := s.population.churn(rng)
		s.quiet.Unlock()
		if err != nil {
			s.Error(err)
			return
		}
		s.report.changes.Add(1)
	}
}

// catchUp moves the beacon and waits until the proxy follows.
func (s *soak) catchUp() error {
	began := time.Now()
	s.beacons++
	pod := podNames[s.beacons%len(podNames)]
	err := s.population.set(func(all map[int]service) {
		b := all[beacon]
		b.endpoints = []string{pod}
		all[beacon] = b
	})
	if err != nil {
		return err
	}
	if err := s.follows(s.ctx, pod, followLimit); err != nil {
		return err
	}
	s.report.follow("catch up", time.Since(began))
	return nil
}

// open opens a window.
func (s *soak) open(name string) *window {
	w := &window{name: name, from: time.Now()}
	s.windows = append(s.windows, w)
	s.report.count(s.mode, name)
	s.note("%s", name)
	return w
}

func (w *window) close() { w.until = time.Now() }

// chapter makes disruptions until a time, and then evaluates the results.
func (s *soak) chapter(deck *deck[disruption], until time.Time) {
	s.Helper()
	s.turnPage()
	for time.Now().Before(until) && (!s.Failed() || *survey) {
		a := deck.draw(s.rng)
		w := s.open(a.name)
		err := a.do(s, w)
		w.close()
		if err != nil {
			s.Errorf("%s: %v\n%s", a.name, err, s.story())
		}
		time.Sleep(time.Duration(s.rng.Int64N(int64(longestPause))))
	}
	s.quiet.Lock()
	defer s.quiet.Unlock()
	s.must(s.traffic.drain())
	s.judge()
	if !s.Failed() || *survey {
		s.compareWithFresh()
	}
}

// drain waits until no attempt that was sent before is in flight.
func (t *traffic) drain() error {
	mark := time.Now()
	return testkit.Poll(attemptsLimit, func() error {
		if slices.ContainsFunc(t.probes, func(p *probe) bool { return p.open(mark) }) {
			return errors.New("attempts do not end")
		}
		return nil
	})
}

// open reports whether an attempt sent before a time is in flight.
func (p *probe) open(mark time.Time) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.ContainsFunc(p.attempts, func(a *attempt) bool { return a.sent.Before(mark) && a.done.IsZero() })
}
