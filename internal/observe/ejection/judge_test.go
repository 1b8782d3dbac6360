package ejection

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

var (
	start = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	web   = dataplane.Target{AddrPort: netip.MustParseAddrPort("10.244.1.1:8080"), Protocol: model.TCP}
)

// trialCourt is a judge, the time, and what a witness would say.
type trialCourt struct {
	*judge
	now      time.Time
	failures []dataplane.Failure
	dataplane.Seen
	probes int     // of an endpoint that is left out
	node   Outcome // what the node finds before that
}

// after lets time pass, and has the judge look.
func (c *trialCourt) after(d time.Duration) *trialCourt {
	c.now = c.now.Add(d)
	fresh := c.failures[:0]
	for _, f := range c.failures {
		if c.now.Sub(f.At) < 5*time.Second {
			fresh = append(fresh, f)
		}
	}
	c.failures = slices.Clone(fresh)
	for _, p := range c.look(c.now, c.failures, map[dataplane.Target]dataplane.Seen{web: c.Seen}) {
		if !p.suspect {
			c.probes++
			continue
		}
		c.probe(c.node).look(c.now, c.failures, map[dataplane.Target]dataplane.Seen{web: c.Seen})
	}
	return c
}

// fail has so many connections of a client fail: their packets are repeated now, or refused.
func (c *trialCourt) fail(client string, connections int, refused bool) *trialCourt {
	f := dataplane.Failure{Target: web, Client: netip.MustParseAddr(client), Refused: refused}
	if !refused {
		f.Waited = resend
	}
	i := slices.IndexFunc(c.failures, func(o dataplane.Failure) bool { return o.Client == f.Client && o.Refused == refused })
	if i < 0 {
		c.failures, i = append(c.failures, f), len(c.failures)
	}
	c.failures[i].Packets += uint64(connections)
	c.failures[i].At = c.now
	return c
}

func (c *trialCourt) silent(client string, connections int) *trialCourt {
	return c.fail(client, connections, false)
}

func (c *trialCourt) refused(client string, connections int) *trialCourt {
	return c.fail(client, connections, true)
}

func (c *trialCourt) answer() *trialCourt {
	c.Answered = c.now
	return c
}

// tries has a client begin to connect, as it is seen of endpoints on trial.
func (c *trialCourt) tries() *trialCourt {
	c.Tried = c.now
	return c
}

func (c *trialCourt) probe(found Outcome) *trialCourt {
	c.probed(web, found, c.now)
	return c
}

func TestWhoIsEjected(t *testing.T) {
	const a, b = "10.244.1.8", "10.244.1.9"
	for _, tt := range []struct {
		name string
		run  func(c *trialCourt)
		want bool
	}{
		{"nobody fails", func(c *trialCourt) { c.after(time.Second) }, false},
		{"one connection", func(c *trialCourt) { c.silent(a, 1).after(time.Second) }, false},
		{"two of one client", func(c *trialCourt) { c.after(0).silent(a, 2).after(100 * time.Millisecond) }, false},
		{"three of one client", func(c *trialCourt) { c.after(0).silent(a, 3).after(600 * time.Millisecond) }, true},
		{"three of one client, before others had time", func(c *trialCourt) {
			c.after(0).silent(a, 3).after(400 * time.Millisecond).answer().after(100 * time.Millisecond)
		}, false},
		{"one connection that is repeated", func(c *trialCourt) {
			c.silent(a, 1).after(time.Second).silent(a, 1).after(time.Second).silent(a, 1).after(time.Second)
		}, false},
		{"three of one client, one after the other", func(c *trialCourt) {
			for n := range 4 { // each repeats its packet every second
				c.after(500*time.Millisecond).silent(a, n).after(500 * time.Millisecond)
			}
		}, true},
		{"one client who connects seldom, and repeats each packet after 1, 3 and 7 seconds", func(c *trialCourt) {
			c.after(0)
			for s := range 12 { // a connection begins every two seconds
				for began := 0; began <= s; began += 2 {
					if age := s - began; age == 1 || age == 3 || age == 7 {
						c.silent(a, 1)
					}
				}
				c.after(time.Second)
			}
		}, true},
		{"three refusals, and an answer between them", func(c *trialCourt) {
			c.after(0).refused(a, 2).after(time.Second).answer().after(time.Second).refused(a, 1).after(time.Second).after(time.Second)
		}, false},
		{"what was counted before the first look", func(c *trialCourt) { c.silent(a, 9).after(0) }, false},
		{"two clients", func(c *trialCourt) { c.silent(a, 1).silent(b, 1).after(0) }, true},
		{"refusals of two clients", func(c *trialCourt) { c.refused(a, 1).refused(b, 1).after(0) }, true},
		{"refusals of one client", func(c *trialCourt) { c.after(0).refused(a, 3).after(1600 * time.Millisecond) }, true},
		{"refusals of one client, before others had time", func(c *trialCourt) { c.after(0).refused(a, 3).after(time.Second) }, false},
		{"refusals of one client who never stops", func(c *trialCourt) {
			c.after(0).answer()
			for range 10 {
				c.refused(a, 1).after(250 * time.Millisecond)
			}
		}, true},
		{"silence for one client who never stops", func(c *trialCourt) {
			c.answer().after(250 * time.Millisecond)
			for range 15 {
				c.silent(a, 2).after(250 * time.Millisecond)
			}
		}, true},
		{"two clients, and an answer after they began", func(c *trialCourt) {
			c.answer().after(500*time.Millisecond).silent(a, 1).silent(b, 1).after(0)
		}, false},
		{"two clients who began after the last answer", func(c *trialCourt) {
			c.answer().after(1100*time.Millisecond).silent(a, 1).silent(b, 1).after(0)
		}, true},
		{"one client kept out by a policy, others are served", func(c *trialCourt) {
			c.answer()
			for range 40 {
				c.silent(a, 4).after(time.Second).answer().after(250 * time.Millisecond)
			}
		}, false},
		{"a full backlog: some are answered", func(c *trialCourt) {
			c.answer()
			for range 40 {
				c.silent(a, 2).silent(b, 1).after(400 * time.Millisecond).answer().after(100 * time.Millisecond)
			}
		}, false},
		{"two clients kept out by a policy, another is served now and then", func(c *trialCourt) {
			c.answer().silent(a, 1).silent(b, 1).after(0)
			for i := range 60 {
				if i%8 == 0 {
					c.answer()
				}
				c.silent(a, 1).silent(b, 1).after(500 * time.Millisecond)
			}
		}, false},
		{"two clients who were kept out, and nobody is served any more", func(c *trialCourt) {
			c.silent(a, 1).silent(b, 1).after(0).answer()
			for range 24 {
				c.silent(a, 1).silent(b, 1).after(500 * time.Millisecond)
			}
		}, true},
		{"refused and accepted by turns", func(c *trialCourt) {
			for range 40 {
				c.refused(a, 1).after(100 * time.Millisecond).answer().after(100 * time.Millisecond)
			}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &trialCourt{judge: newJudge(), now: start}
			tt.run(c)
			if got := len(c.ejected()) > 0; got != tt.want {
				t.Errorf("ejected: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestPausesGrow(t *testing.T) {
	c := &trialCourt{judge: newJudge(), now: start}
	c.silent("10.244.1.8", 1).silent("10.244.1.9", 1).after(0)
	for i, pause := range []time.Duration{5, 10, 20, 40, 60, 60} {
		e := c.ejected()
		if len(e) != 1 || e[0].Until.Sub(c.now) != pause*time.Second || e[0].Attempts != 2 || !e[0].Since.Equal(start.Add(-resend)) {
			t.Fatalf("pause %d: %+v at %v, want %v", i, e, c.now, pause*time.Second)
		}
		if c.after(pause*time.Second - time.Millisecond); c.probes != i {
			t.Fatalf("%d probes in pause %d", c.probes, i)
		}
		if c.after(time.Millisecond); c.probes != i+1 || len(c.ejected()) != 1 {
			t.Fatalf("%d probes after pause %d", c.probes, i)
		}
		if i%2 == 0 {
			c.probe(Silent) // nobody needs to try
			continue
		}
		if e = c.probe(Silent).after(0).ejected(); len(e) != 1 || !e[0].OnTrial {
			t.Fatalf("no trial: %+v", e)
		}
		if e := c.after(time.Hour).ejected(); !e[0].OnTrial {
			t.Fatalf("the trial ended without a client: %+v", e)
		}
		c.tries().after(trialTime)
	}
}

// A policy about the node may answer it with resets: clients try an endpoint that they may reach nonetheless,
// after every second of the pauses, which grow.
func TestRefusedProbes(t *testing.T) {
	c := &trialCourt{judge: newJudge(), now: start, node: Refused}
	c.silent("10.244.1.8", 1).silent("10.244.1.9", 1).after(0)
	for i, pause := range []time.Duration{5, 10, 20, 40, 60, 60} {
		e := c.after(pause * time.Second).probe(Refused).after(0).ejected()
		if c.probes != i+1 || len(e) != 1 || e[0].OnTrial != (i%2 == 1) {
			t.Fatalf("after pause %d and %d probes: %+v", i, c.probes, e)
		}
		if e[0].OnTrial { // and the process is dead
			if e := c.after(period).refused("10.244.1.8", 1).after(period).ejected(); len(e) != 1 || e[0].OnTrial {
				t.Fatalf("refused on trial after pause %d: %+v", i, e)
			}
		}
	}
	c.after(time.Minute).probe(Refused).after(time.Minute).probe(Refused).after(0)
	if e := c.after(period).answer().after(period).ejected(); len(e) != 0 {
		t.Errorf("a client was answered, and ejected are %+v", e)
	}
}

// A suspect whom the node reaches is left alone, and asked at most as often as clients need to be suspicious.
func TestAnswerToTheNodeAcquits(t *testing.T) {
	const a, b = "10.244.1.8", "10.244.1.9"
	for _, tt := range []struct {
		name string
		fail func(c *trialCourt)
	}{
		{"silent for one client", func(c *trialCourt) { c.silent(a, 2) }},
		{"silent for two clients", func(c *trialCourt) { c.silent(a, 1).silent(b, 1) }},
		{"refusing two clients", func(c *trialCourt) { c.refused(a, 1).refused(b, 1) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &trialCourt{judge: newJudge(), now: start, node: Answered}
			asked := 0
			for range 240 { // nobody else connects for a minute
				tt.fail(c)
				c.now = c.now.Add(period)
				for range c.look(c.now, c.failures, nil) {
					asked++
					c.probe(Answered)
				}
				if len(c.ejected()) > 0 {
					t.Fatalf("ejected %v after the start", c.now.Sub(start))
				}
			}
			if asked == 0 || asked > 60/int(barredSilence/time.Second)+1 {
				t.Errorf("the node connected %d times in a minute", asked)
			}
			// It dies, and does not answer the node either.
			c.node = Silent
			for range int(2 * barredSilence / period) {
				tt.fail(c)
				c.after(period)
			}
			if len(c.ejected()) == 0 {
				t.Error("it is not ejected when it is dead")
			}
		})
	}
	t.Run("others are answered meanwhile", func(t *testing.T) {
		c := &trialCourt{judge: newJudge(), now: start}
		c.silent(a, 1).silent(b, 1)
		c.look(c.now, c.failures, nil) // and the node waits
		c.now = c.now.Add(period)
		c.answer().probe(Silent).after(period)
		if len(c.ejected()) > 0 {
			t.Error("it is ejected")
		}
	})
}

func TestFirstAnswerEndsIt(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after int // pauses
		end   func(c *trialCourt)
	}{
		{"of a client on trial", 2, func(c *trialCourt) {
			c.probe(Silent).after(2 * firstPause).probe(Silent).after(0).after(10 * time.Millisecond).answer().after(10 * time.Millisecond)
		}},
		{"of the probe", 1, func(c *trialCourt) { c.probe(Answered) }},
		{"of the second probe", 2, func(c *trialCourt) { c.probe(Silent).after(2 * firstPause).probe(Answered) }},
		{"to a client who comes late", 2, func(c *trialCourt) {
			c.probe(Silent).after(2 * firstPause).probe(Silent).after(0).after(time.Minute).tries().after(10 * time.Millisecond).answer().after(trialTime)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &trialCourt{judge: newJudge(), now: start}
			c.silent("10.244.1.8", 1).silent("10.244.1.9", 1).after(0).after(firstPause)
			if tt.end(c); len(c.ejected()) != 0 {
				t.Fatal("it does not end")
			}
			c.after(time.Minute)
			if len(c.ejected()) != 0 || len(c.records) == 0 {
				t.Error("it is not remembered")
			}
			c.silent("10.244.1.8", 1).silent("10.244.1.9", 1).after(0)
			if e := c.ejected(); len(e) != 1 || e[0].Until.Sub(c.now) != firstPause<<tt.after {
				t.Errorf("a relapse is %+v", e)
			}
		})
	}
	t.Run("refused on trial", func(t *testing.T) {
		c := &trialCourt{judge: newJudge(), now: start}
		c.silent("10.244.1.8", 1).silent("10.244.1.9", 1).after(0)
		c.after(firstPause).probe(Silent).after(2 * firstPause).probe(Silent).after(0).after(time.Millisecond)
		if e := c.ejected(); len(e) != 1 || !e[0].OnTrial {
			t.Fatalf("not on trial: %+v", e)
		}
		if e := c.refused("10.244.1.8", 1).after(time.Millisecond).ejected(); len(e) != 1 || e[0].OnTrial {
			t.Errorf("it is %+v", e)
		}
	})
	t.Run("datagrams", func(t *testing.T) { // need no answer
		datagrams := dataplane.Target{AddrPort: web.AddrPort, Protocol: model.UDP}
		j := newJudge()
		refused := func(client string) dataplane.Failure {
			return dataplane.Failure{Target: datagrams, Client: netip.MustParseAddr(client), Refused: true, Packets: 1, At: start}
		}
		j.look(start, []dataplane.Failure{refused("10.244.1.8"), refused("10.244.1.9")}, nil)
		now := start.Add(firstPause)
		j.look(now, nil, nil)
		j.probed(datagrams, Silent, now)
		j.look(now, nil, nil)
		tried := map[dataplane.Target]dataplane.Seen{datagrams: {Tried: now.Add(time.Millisecond)}}
		if j.look(now.Add(2*time.Millisecond), nil, tried); len(j.ejected()) != 1 {
			t.Error("the trial ended at once")
		}
		if j.look(now.Add(trialTime+time.Millisecond), nil, tried); len(j.ejected()) != 0 {
			t.Error("it waits for an answer")
		}
	})
	t.Run("forgotten", func(t *testing.T) {
		c := &trialCourt{judge: newJudge(), now: start}
		c.silent("10.244.1.8", 1).silent("10.244.1.9", 1).after(0).after(firstPause).probe(Answered)
		if c.after(relapse + time.Second); len(c.records) > 0 {
			t.Error("it is remembered for ever")
		}
	})
	t.Run("gone", func(t *testing.T) {
		c := &trialCourt{judge: newJudge(), now: start}
		c.silent("10.244.1.8", 1).silent("10.244.1.9", 1).after(0)
		if c.keep(func(dataplane.Target) bool { return false }); len(c.records) > 0 {
			t.Error("an endpoint that is gone is remembered")
		}
	})
}

// What is remembered does not grow, however long clients fail.
func TestHistoryIsBounded(t *testing.T) {
	c := &trialCourt{judge: newJudge(), now: start}
	for range 1000 {
		c.silent("10.244.1.8", 1).refused("10.244.1.9", 1).after(period)
	}
	for from, counts := range c.counts {
		if most := int(maxHistory/period) + 3; len(counts) > most || cap(counts) > 4*most {
			t.Errorf("%d counts of %v, in room for %d", len(counts), from, cap(counts))
		}
	}
	for range 1000 {
		if c.after(period); len(c.counts) == 0 {
			return
		}
	}
	t.Error("failures of long ago are remembered")
}
