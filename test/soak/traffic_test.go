//go:build linux

package soak

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// The rates and timeouts of probes; package lab extends the latter on a busy machine. Probes do not wait for each other's answers, so
// that the time of losses is exact. A datagram is sent once; TCP retransmits, and
// gives up later.
const (
	probePeriod   = 300 * time.Millisecond
	sessionPeriod = 100 * time.Millisecond
	datagramTime  = 2 * time.Second
	connectTime   = 5 * time.Second
	sessionTime   = 12 * time.Second
)

// attempt is one connection, datagram or request, and its outcome.
type attempt struct {
	sent, done time.Time // done is zero while it is under way
	lost       bool
	what       string // was seen, if it was lost
	by         string // who answered
}

// probe makes the same attempt repeatedly.
type probe struct {
	name string
	flow lab.Flow
	want lab.Kind
	// ask makes one attempt.
	ask   func(context.Context) lab.Outcome
	close func() // gives up what ask keeps
	// fresh is set if each attempt is a new connection, as explain assumes.
	fresh bool
	// sticky is set if the same endpoint must answer each time.
	sticky bool
	period time.Duration
	// about is whose verdict it shows, in a trial.
	about subject
	// waits is set if an attempt starts only after the previous one is over.
	waits bool

	mutex    sync.Mutex
	attempts []*attempt
}

// traffic is all probes.
type traffic struct {
	lab     *lab.Lab
	probes  []*probe
	cancel  context.CancelFunc
	workers sync.WaitGroup
}

// startTraffic starts the probes that add adds.
func startTraffic(ctx context.Context, l *lab.Lab, add func(*traffic)) *traffic {
	t := &traffic{lab: l}
	add(t)
	ctx, t.cancel = context.WithCancel(ctx)
	for i, p := range t.probes {
		t.workers.Go(func() { p.run(ctx, p.period*time.Duration(*pace*i)/time.Duration(len(t.probes))) })
	}
	return t
}

// addAll adds probes of all kinds of Services, for soak.
func (t *traffic) addAll() {
	for f := range families {
		for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP} {
			t.add(f, protocol)
		}
	}
}

// add adds the probes of a family and protocol.
func (t *traffic) add(family int, protocol lab.Protocol) {
	at := func(ips pair, port uint16) netip.AddrPort { return netip.AddrPortFrom(ips[family], port) }
	node := pair{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}
	for _, of := range []struct {
		name string
		from string
		to   netip.AddrPort
		// held is set if there is also a standing connection.
		held, sticky bool
	}{
		{"ClusterIP from a pod", "pod3", at(clusterIP(plain), 80), true, false},
		{"ClusterIP from the node", "node1", at(clusterIP(plain), 80), true, false},
		{"node port from outside", "client", at(node, nodePort(nodePorts, protocol)), true, false},
		{"node port from a pod", "pod2", at(node, nodePort(nodePorts, protocol)), false, false},
		{"load balancer with source ranges", "client", at(externalIP(admitting), 80), true, false},
		{"external traffic policy Local", "client2", at(externalIP(localOutside), 80), true, false},
		{"internal traffic policy Local", "pod3", at(clusterIP(localInside), 80), false, false},
		{"session affinity", "pod3", at(clusterIP(sticky), 80), true, true},
		{"external IP", "client", at(externalIP(external), 80), true, false},
	} {
		flow := lab.Flow{From: of.from, Protocol: protocol, To: of.to}
		t.fresh(of.name, flow, lab.Answered).sticky = of.sticky
		if of.held {
			t.held(of.name, flow)
		}
	}
	for name, flow := range map[string]lab.Flow{
		"changing endpoints":            {From: "pod3", Protocol: protocol, To: at(clusterIP(changing), 80)},
		"node port, changing endpoints": {From: "client", Protocol: protocol, To: at(node, nodePort(changing, protocol))},
	} {
		t.changing(name, flow)
	}
	if protocol == lab.TCP {
		t.fresh("source that is not admitted", lab.Flow{From: "client2", Protocol: protocol, To: at(externalIP(admitting), 80)}, lab.Dropped)
		t.fresh("no endpoints", lab.Flow{From: "pod3", Protocol: protocol, To: at(clusterIP(empty), 80)}, lab.Refused)
		t.held("changing endpoints", lab.Flow{From: "pod3", Protocol: protocol, To: at(clusterIP(changing), 80)})
	}
}

func (t *traffic) probe(name string, f lab.Flow) *probe {
	p := &probe{name: name, flow: f, want: lab.Answered, period: probePeriod, close: func() {}}
	t.probes = append(t.probes, p)
	return p
}

// fresh adds a probe that makes a new connection each time, or sends one datagram from
// a new port.
func (t *traffic) fresh(name string, f lab.Flow, want lab.Kind) *probe {
	f.Timeout = connectTime
	switch {
	case want == lab.Dropped:
		f.Timeout = lab.ShortTimeout
	case f.Protocol == lab.UDP:
		f.Timeout = datagramTime
	}
	p := t.probe("new, "+name, f)
	p.want, p.fresh = want, true
	p.ask = func(ctx context.Context) lab.Outcome { return t.lab.Connect(ctx, f) }
	if f.Protocol == lab.UDP {
		p.ask = func(context.Context) lab.Outcome { return t.datagram(f) }
	}
	return p
}

// changing adds a probe of a Service whose endpoints change. Ending the flows of a
// removed endpoint may lose an answer in flight, so datagrams are repeated, as
// clients do.
func (t *traffic) changing(name string, f lab.Flow) {
	f.Timeout = connectTime
	p := t.probe("new, "+name, f)
	p.fresh = true
	p.ask = func(ctx context.Context) lab.Outcome { return t.lab.Connect(ctx, f) }
}

// datagram sends one datagram from a new port.
func (t *traffic) datagram(f lab.Flow) lab.Outcome {
	s, err := t.lab.Open(f)
	if err != nil {
		return lab.Outcome{Kind: lab.Failed, Err: err}
	}
	defer s.Close()
	return outcome(s.Ask())
}

func outcome(a lab.Answer, err error) lab.Outcome {
	if err != nil {
		return lab.Outcome{Kind: lab.Failed, Err: err}
	}
	return lab.Outcome{Kind: lab.Answered, Answer: a}
}

// held adds a probe that keeps its connection, or its source port.
func (t *traffic) held(name string, f lab.Flow) {
	f.Timeout = sessionTime
	if f.Protocol == lab.UDP {
		f.Timeout = datagramTime
	}
	p := t.probe("held, "+name, f)
	p.waits, p.period = true, sessionPeriod
	var session *lab.Session
	p.close = func() {
		if session != nil {
			session.Close()
			session = nil
		}
	}
	p.ask = func(context.Context) lab.Outcome {
		if session == nil {
			s, err := t.lab.Open(f)
			if err != nil {
				return lab.Outcome{Kind: lab.Failed, Err: err}
			}
			session = s
		}
		o := outcome(session.Ask())
		if o.Kind != lab.Answered && f.Protocol == lab.TCP {
			p.close()
		}
		return o
	}
}

// run makes attempts until ctx ends.
func (p *probe) run(ctx context.Context, phase time.Duration) {
	var open sync.WaitGroup
	defer p.close()
	defer open.Wait()
	select {
	case <-ctx.Done():
		return
	case <-time.After(phase):
	}
	tick := time.NewTicker(p.period * time.Duration(*pace))
	defer tick.Stop()
	for {
		a := p.begin()
		// An attempt that has begun is finished and counted.
		try := func() { p.end(a, p.ask(context.WithoutCancel(ctx))) }
		if p.waits {
			try()
		} else {
			open.Go(try)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *probe) begin() *attempt {
	a := &attempt{sent: time.Now()}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.attempts = append(p.attempts, a)
	return a
}

func (p *probe) end(a *attempt, o lab.Outcome) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	a.done, a.lost, a.by = time.Now(), o.Kind != p.want, o.By
	if p.want == lab.Dropped {
		a.lost = o.Kind == lab.Answered
	}
	if a.lost {
		a.what = o.String()
	}
}

// suspicious returns the probes whose recent attempts failed, or take long.
func (t *traffic) suspicious() (out []*probe) {
	now, late := time.Now(), testkit.Scaled(probePeriod)
	for _, p := range t.probes {
		if p.suspicious(now, late) {
			out = append(out, p)
		}
	}
	return out
}

func (p *probe) suspicious(now time.Time, late time.Duration) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for i := len(p.attempts) - 1; i >= 0; i-- {
		switch a := p.attempts[i]; {
		case a.done.IsZero() && now.Sub(a.sent) > late:
			return true
		case !a.done.IsZero():
			return a.lost
		}
	}
	return false
}

// copies returns the attempts that were sent since a time, as they are now, and have not been
// taken.
func (p *probe) copies(since time.Time) (all []*attempt) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, a := range p.attempts {
		if !a.sent.Before(since) {
			c := *a
			all = append(all, &c)
		}
	}
	return all
}

// take returns and forgets the finished attempts, in the order in which they were
// sent, up to the first one in flight.
func (p *probe) take() []*attempt {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	n := 0
	for n < len(p.attempts) && !p.attempts[n].done.IsZero() {
		n++
	}
	taken := p.attempts[:n:n]
	p.attempts = p.attempts[n:]
	return taken
}

// stop ends all probes, after their attempts in flight.
func (t *traffic) stop() {
	t.cancel()
	t.workers.Wait()
}

func (p *probe) String() string { return fmt.Sprintf("%s (%v)", p.name, p.flow) }
