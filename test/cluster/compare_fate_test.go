package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/oracle/randomworld"
	"sluice/test/lab"
)

// attempt is a packet that is sent again and again, in both labs. What the oracle
// says of it only decides how to look, not what is right.
type attempt struct {
	lab.Flow
	packet  oracle.Packet
	verdict oracle.Verdict
}

// fate is all that became of an attempt.
type fate map[string]bool

func (f fate) String() string { return strings.Join(slices.Sorted(maps.Keys(f)), "; ") }

// How often an attempt is made. One that differs is made again, more often and with
// more patience: by chance, an endpoint is not seen; a busy machine loses a packet;
// a proxy is late with what the marker does not tell of.
const (
	firstLook  = 2  // enough, if nobody answers
	secondLook = 10 // more, if somebody does
	longLook   = 40
	longPause  = 5 * time.Second // before the last look
)

// compare sends random packets in both labs and compares what becomes of them.
func (c *contest) compare(packets int) {
	c.Helper()
	attempts := c.attempts(packets)
	fates := c.look(attempts, firstLook)
	answered := where(attempts, func(i int) bool { return fates[0][i].answered() || fates[1][i].answered() })
	for lane, more := range c.look(pick(attempts, answered), secondLook) {
		for j, i := range answered {
			maps.Copy(fates[lane][i], more[j])
		}
	}
	differs := func(i int) bool {
		return !maps.Equal(fates[0][i], fates[1][i]) && c.known(attempts[i], fates[0][i], fates[1][i]) == ""
	}
	differing := where(attempts, differs)
	for pause := 100 * time.Millisecond; len(differing) > 0 && pause < longPause; pause *= 3 {
		time.Sleep(pause)
		for _, i := range differing {
			if !maps.Equal(fates[0][i].unanswered(), fates[1][i].unanswered()) {
				attempts[i].Timeout = lab.DefaultTimeout
			}
		}
		for lane, again := range c.look(pick(attempts, differing), longLook) {
			for j, i := range differing {
				fates[lane][i] = again[j]
			}
		}
		differing = slices.DeleteFunc(differing, func(i int) bool { return !differs(i) })
	}
	for i, a := range attempts {
		c.judge(a, fates[0][i], fates[1][i])
	}
}

// judge counts an attempt, and complains if its fate differs for no known reason.
func (c *contest) judge(a attempt, theirs, ours fate) {
	c.Helper()
	if maps.Equal(theirs, ours) {
		c.tally.same(theirs)
		return
	}
	if name := c.known(a, theirs, ours); name != "" {
		c.tally.known(name)
		return
	}
	c.Errorf("%v\nupstream: %v\n    ours: %v\nthe oracle: %v %v masqueraded %v, because of %s",
		a.Flow, theirs, ours, a.verdict.Action, a.verdict.Endpoints, a.verdict.MasqueradedTo, a.verdict.Why)
}

func where(attempts []attempt, holds func(int) bool) []int {
	var out []int
	for i := range attempts {
		if holds(i) {
			out = append(out, i)
		}
	}
	return out
}

func pick(attempts []attempt, which []int) []attempt {
	var out []attempt
	for _, i := range which {
		out = append(out, attempts[i])
	}
	return out
}

// attempts draws packets, each once. Where there is session affinity, the same
// client goes to another frontend of the Service as well.
func (c *contest) attempts(count int) []attempt {
	w := c.present()
	seen := map[string]bool{}
	var out []attempt
	add := func(a attempt) {
		if !seen[a.Flow.String()] {
			seen[a.Flow.String()] = true
			out = append(out, a)
		}
	}
	for range count {
		p := randomworld.RandomPacket(c.rng, w, c.topology)
		a := c.attempt(w, p)
		add(a)
		if a.verdict.Affinity == 0 {
			continue
		}
		p.Destination, p.Port = c.otherFrontend(a.packet, c.service(a.verdict.Service))
		if other := c.attempt(w, p); sameClient(a, other) {
			add(other)
		}
	}
	return out
}

// otherFrontend draws an address and port of a Service for a packet that is for it
// already.
func (c *contest) otherFrontend(p oracle.Packet, s *model.Service) (netip.Addr, uint16) {
	port := s.Ports[slices.IndexFunc(s.Ports, func(port model.ServicePort) bool {
		return port.Protocol == p.Protocol && (port.Port == p.Port || port.NodePort == p.Port)
	})]
	addrs := slices.Concat(s.ClusterIPs, s.ExternalIPs, s.LoadBalancerIPs)
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return a.Is4() != p.Destination.Is4() })
	if port.NodePort != 0 && c.rng.IntN(2) == 0 {
		return sameFamily(c.topology.NodeIPs, p.Destination), port.NodePort
	}
	return addrs[c.rng.IntN(len(addrs))], port.Port
}

func (c *contest) attempt(w oracle.World, p oracle.Packet) attempt {
	l := c.lanes[0].lab
	node := l.Owner(p.Destination)
	if node != nil && node.Name == "node1" && p.Port >= c.topology.NodePorts.First && c.rng.IntN(6) == 0 && c.odd.oneIn(1, routedLocal) {
		p.Destination = sameFamily(localByRoute, p.Destination)
	}
	from := l.Owner(p.Source)
	p.Source = sameFamily(from.Addrs[:], p.Destination)
	if from.Owns(p.Destination) || from.Name == "node1" && slices.Contains(localByRoute, p.Destination) {
		p.Source = p.Destination // who talks to himself does so from that address
	}
	a := attempt{packet: p, verdict: oracle.Decide(w, p)}
	a.Flow = lab.Flow{From: from.Name, To: netip.AddrPortFrom(p.Destination, p.Port),
		Protocol: lab.Protocol(strings.ToLower(p.Protocol.String())), Timeout: lab.ShortTimeout}
	if a.verdict.Action == oracle.Forward && !c.astray(from, a.verdict) {
		a.Timeout = lab.DefaultTimeout
	}
	return a
}

// astray tells whether an answer may come by a way that does not lead through
// node1, so that the client does not recognise it.
func (c *contest) astray(from *lab.Host, v oracle.Verdict) bool {
	return from.Node != "node1" && slices.ContainsFunc(v.Endpoints, func(e netip.AddrPort) bool {
		return !v.MasqueradedTo[e] && c.lanes[0].lab.Owner(e.Addr()).Node != "node1"
	})
}

func sameFamily(addrs []netip.Addr, as netip.Addr) netip.Addr {
	i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() == as.Is4() })
	return addrs[i]
}

// look makes each attempt so many times, in both labs at once, and returns the
// fates of each lab.
func (c *contest) look(attempts []attempt, times int) [2][]fate {
	var fates [2][]fate
	var both sync.WaitGroup
	for i, l := range c.lanes {
		fates[i] = make([]fate, len(attempts))
		for j := range attempts {
			fates[i][j] = fate{}
		}
		both.Go(func() {
			free := where(attempts, func(j int) bool { return attempts[j].verdict.Affinity == 0 })
			l.look(attempts, free, times, func(j int, o lab.Outcome) { fates[i][j].add(o) })
			l.lookSticky(c, attempts, times, fates[i])
		})
	}
	both.Wait()
	return fates
}

// look makes the attempts that are asked for, many at once.
func (l *lane) look(attempts []attempt, which []int, times int, saw func(int, lab.Outcome)) {
	var flows []lab.Flow
	for range times {
		for _, i := range which {
			flows = append(flows, attempts[i].Flow)
		}
	}
	for n, o := range l.lab.Probe(context.Background(), flows) {
		saw(which[n%len(which)], o)
	}
}

// lookSticky makes the attempts to Services with session affinity. Each time, all
// clients are forgotten before. Then the first attempt of a client shows which
// endpoints there are, and the next ones whether it stays with one of them.
func (l *lane) lookSticky(c *contest, attempts []attempt, times int, fates []fate) {
	sticky := where(attempts, func(i int) bool { return attempts[i].verdict.Affinity > 0 })
	if len(sticky) == 0 {
		return
	}
	for range times {
		l.forget(c)
		l.look(attempts, sticky, 1, func(i int, o lab.Outcome) { fates[i].add(o) })
		var last [2]map[int]string
		for n := range last {
			last[n] = map[int]string{}
			l.look(attempts, sticky, 1, func(i int, o lab.Outcome) { last[n][i] = nameOf(o) })
		}
		for _, i := range sticky {
			if last[0][i] != last[1][i] {
				fates[i]["does not stay"] = true
			}
			for _, j := range sticky {
				if i < j && sameClient(attempts[i], attempts[j]) && last[1][i] != last[1][j] {
					fates[i]["elsewhere by "+attempts[j].To.String()] = true
				}
			}
		}
	}
}

// sameClient tells whether two attempts are of one client, to one service port, and
// have the same endpoints to choose from.
func sameClient(a, b attempt) bool {
	return a.From == b.From && a.packet.Source == b.packet.Source && a.Protocol == b.Protocol &&
		a.verdict.Service == b.verdict.Service && slices.Equal(a.verdict.Endpoints, b.verdict.Endpoints)
}

// add takes note of an outcome.
func (f fate) add(o lab.Outcome) { f[describe(o)] = true }

func describe(o lab.Outcome) string {
	switch o.Kind {
	case lab.Answered:
		return fmt.Sprintf("%s sees %v", nameOf(o), o.Source.Addr())
	case lab.Refused, lab.Failed:
		if errno := syscall.Errno(0); errors.As(o.Err, &errno) { // by which ICMP error, or a reset
			return fmt.Sprintf("%s: %v", o.Kind, errno)
		}
	}
	return string(o.Kind)
}

// nameOf names the endpoint that answered, if one did.
func nameOf(o lab.Outcome) string {
	if o.Kind != lab.Answered {
		return string(o.Kind)
	}
	return fmt.Sprintf("%s:%d", o.By, o.Port)
}

func (f fate) answered() bool { return len(f.unanswered()) < len(f) }

// unanswered is what became of it when nobody answered.
func (f fate) unanswered() fate {
	out := maps.Clone(f)
	maps.DeleteFunc(out, func(what string, _ bool) bool { return strings.Contains(what, " sees ") })
	return out
}

// tally counts what was seen.
type tally struct {
	packets                           int
	answered, refused, dropped, other int
	differences                       map[string]int
}

func (t *tally) same(f fate) {
	t.packets++
	switch {
	case f.answered():
		t.answered++
	case f[string(lab.Dropped)]:
		t.dropped++
	case strings.HasPrefix(f.String(), string(lab.Refused)):
		t.refused++
	default:
		t.other++
	}
}

func (t *tally) known(name string) {
	t.packets++
	if t.differences == nil {
		t.differences = map[string]int{}
	}
	t.differences[name]++
}

func (t tally) String() string {
	return fmt.Sprintf("%d packets, of which in both %d were answered, %d refused, %d dropped, %d left alone; documented differences: %v",
		t.packets, t.answered, t.refused, t.dropped, t.other, t.differences)
}

// expectVariety: a comparison in which nobody answered shows nothing.
func (t tally) expectVariety(tb testing.TB) {
	tb.Helper()
	if t.answered == 0 || t.refused == 0 || t.dropped+t.other == 0 {
		tb.Errorf("the packets show less than they should: %v", t)
	}
}
