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
	"sluice/internal/testkit"
	"sluice/test/lab"
)

// attempt is a packet that is sent repeatedly, in both labs. The oracle's verdict
// only decides how to probe, not what is right.
type attempt struct {
	lab.Flow
	packet  oracle.Packet
	verdict oracle.Verdict
}

// outcomes is the set of what happened to an attempt.
type outcomes map[string]bool

func (f outcomes) String() string { return strings.Join(slices.Sorted(maps.Keys(f)), "; ") }

// How often an attempt is made. One that differs is repeated, more often and with
// longer timeouts: an endpoint may not be seen by chance, a busy machine may lose a
// packet, or a proxy may be late with what the marker does not show.
const (
	firstLook  = 2               // enough if there is no answer
	secondLook = 10              // more if there is one
	longLook   = 20              // at a time
	longLooks  = 3               // until the two are the same
	longPause  = 5 * time.Second // before the last try
)

// comparison holds the outcomes of attempts, in each lab.
type comparison struct {
	*contest
	attempts []attempt
	outcomes [2][]outcomes
}

// compare sends random packets in both labs and compares their outcomes.
func (c *contest) compare(packets int) {
	c.Helper()
	s := &comparison{contest: c, attempts: c.attempts(packets)}
	var all []int
	for i := range s.attempts {
		all = append(all, i)
		s.outcomes[0], s.outcomes[1] = append(s.outcomes[0], outcomes{}), append(s.outcomes[1], outcomes{})
	}
	s.look(all, firstLook)
	s.look(slices.DeleteFunc(all, func(i int) bool { return !s.outcomes[0][i].answered() && !s.outcomes[1][i].answered() }), secondLook)
	s.lookAgain()
	for i, a := range s.attempts {
		c.judge(a, s.outcomes[0][i], s.outcomes[1][i])
	}
}

// look makes some of the attempts that many times, in both labs at once.
func (s *comparison) look(which []int, times int) {
	var both sync.WaitGroup
	for i, l := range s.lanes {
		both.Go(func() {
			free, sticky := s.byAffinity(which)
			l.look(s.attempts, free, times, func(j int, o lab.Outcome) { s.outcomes[i][j].add(o) })
			l.lookSticky(s.contest, s.attempts, sticky, times, s.outcomes[i])
		})
	}
	both.Wait()
}

func (s *comparison) byAffinity(which []int) (free, sticky []int) {
	for _, i := range which {
		if s.attempts[i].verdict.Affinity == 0 {
			free = append(free, i)
		} else {
			sticky = append(sticky, i)
		}
	}
	return free, sticky
}

// differing returns the attempts whose outcomes differ for no known reason.
func (s *comparison) differing(which []int) []int {
	return slices.DeleteFunc(slices.Clone(which), func(i int) bool {
		theirs, ours := s.outcomes[0][i], s.outcomes[1][i]
		return maps.Equal(theirs, ours) || s.known(s.attempts[i], theirs, ours) != ""
	})
}

// lookAgain repeats attempts that differ, until they do not or it is certain. The
// first time, earlier outcomes still count, unless a packet may have been lost.
func (s *comparison) lookAgain() {
	var differing []int
	for i := range s.attempts {
		differing = append(differing, i)
	}
	differing = s.differing(differing)
	const firstPause = 100 * time.Millisecond
	for pause := firstPause; len(differing) > 0 && pause < longPause; pause *= 3 {
		time.Sleep(testkit.Scaled(pause))
		for _, i := range differing {
			lost := !maps.Equal(s.outcomes[0][i].unanswered(), s.outcomes[1][i].unanswered())
			if lost {
				s.attempts[i].beMorePatient()
			}
			if lost || pause > firstPause {
				s.outcomes[0][i], s.outcomes[1][i] = outcomes{}, outcomes{}
			}
		}
		for range longLooks {
			s.look(differing, longLook)
			differing = s.differing(differing)
		}
	}
}

// beMorePatient increases timeouts. Attempts under session affinity are made one
// after another, and cannot all wait that long.
func (a *attempt) beMorePatient() {
	a.Timeout = lab.DefaultTimeout
	if a.verdict.Affinity > 0 {
		a.Timeout = 3 * lab.ShortTimeout
	}
}

// judge counts an attempt, and complains if its outcomes differ for no known reason.
func (c *contest) judge(a attempt, theirs, ours outcomes) {
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

// attempts draws packets, each once. Under session affinity, the same client also
// connects to another frontend of the Service.
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

// otherFrontend draws another address and port of the Service of a packet.
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
	switch {
	case a.verdict.Affinity > 0:
		a.Timeout = lab.ShortTimeout / 2
	case a.verdict.Action == oracle.Forward && !c.astray(from, a.verdict):
		a.Timeout = lab.DefaultTimeout
	}
	return a
}

// astray reports whether an answer may not come back through node1, so that the
// client does not recognise it.
func (c *contest) astray(from *lab.Host, v oracle.Verdict) bool {
	return from.Node != "node1" && slices.ContainsFunc(v.Endpoints, func(e netip.AddrPort) bool {
		return !v.MasqueradedTo[e] && c.lanes[0].lab.Owner(e.Addr()).Node != "node1"
	})
}

func sameFamily(addrs []netip.Addr, as netip.Addr) netip.Addr {
	i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() == as.Is4() })
	return addrs[i]
}

// look makes the selected attempts, many at once.
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

// stayLook is how often it is checked that a client keeps its endpoint.
const stayLook = 6

// lookSticky makes the attempts to Services with session affinity. Each time, all
// clients are forgotten first. Then the first attempt of a client shows which
// endpoints there are, and the next ones whether it keeps one of them.
func (l *lane) lookSticky(c *contest, attempts []attempt, sticky []int, times int, seen []outcomes) {
	if len(sticky) == 0 {
		return
	}
	for n := range times {
		l.forget(c)
		l.look(attempts, sticky, 1, func(i int, o lab.Outcome) { seen[i].add(o) })
		if n < stayLook {
			l.lookWhoStays(attempts, sticky, seen)
		}
	}
}

func (l *lane) lookWhoStays(attempts []attempt, sticky []int, seen []outcomes) {
	var last [2]map[int]string
	for n := range last {
		last[n] = map[int]string{}
		l.look(attempts, sticky, 1, func(i int, o lab.Outcome) { last[n][i] = nameOf(o) })
	}
	for _, i := range sticky {
		if last[0][i] != last[1][i] {
			seen[i]["does not stay"] = true
		}
		for _, j := range sticky {
			if i < j && sameClient(attempts[i], attempts[j]) && last[1][i] != last[1][j] {
				seen[i]["elsewhere by "+attempts[j].To.String()] = true
			}
		}
	}
}

// sameClient reports whether two attempts are of one client, to one service port,
// and have the same pool.
func sameClient(a, b attempt) bool {
	return a.From == b.From && a.packet.Source == b.packet.Source && a.Protocol == b.Protocol &&
		a.verdict.Service == b.verdict.Service && slices.Equal(a.verdict.Endpoints, b.verdict.Endpoints)
}

// add records an outcome.
func (f outcomes) add(o lab.Outcome) { f[describe(o)] = true }

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

// nameOf returns the name of the endpoint that answered, if any.
func nameOf(o lab.Outcome) string {
	if o.Kind != lab.Answered {
		return string(o.Kind)
	}
	return fmt.Sprintf("%s:%d", o.By, o.Port)
}

func (f outcomes) answered() bool { return len(f.unanswered()) < len(f) }

// unanswered returns the outcomes without an answer.
func (f outcomes) unanswered() outcomes {
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

func (t *tally) same(f outcomes) {
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

// expectVariety: a comparison without any answer shows nothing.
func (t tally) expectVariety(tb testing.TB) {
	tb.Helper()
	if t.answered == 0 || t.refused == 0 || t.dropped+t.other == 0 {
		tb.Errorf("the packets show less than they should: %v", t)
	}
}
