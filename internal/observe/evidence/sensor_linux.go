package evidence

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/backoff"
	"sluice/internal/base/notify"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/conntrack"
	"sluice/internal/plan"
)

const (
	// minInterval and maxInterval are how often the table is looked at. Between them the
	// time between two looks is costFactor times the CPU time of one: the least of the last
	// few, because the kernel has a thread pay for packets that it handles meanwhile.
	minInterval = time.Second
	maxInterval = 30 * time.Second
	costFactor  = 145
	fewLooks    = 4
	// maxDoubtful is how many endpoints are asked for one by one: the kernel goes through the
	// whole table each time, and takes about five times as long to send all of it.
	maxDoubtful = 4
	// staleInRange is after how long without another attempt a failure at one of many ports is forgotten.
	staleInRange = time.Minute
)

// Options configures a Sensor.
type Options struct {
	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
	// Engine tells which clients are pods.
	Engine engine.Inspector
	// NetNS is the network namespace of the connections, as an open file descriptor; 0 for
	// that of the process.
	NetNS int
	// OnLook is called after each look at the table; may be nil.
	OnLook func()
}

// Sensor watches which endpoints answer.
type Sensor struct {
	Options
	// connections and watch read connection tracking; fields for tests.
	connections func(context.Context, int, conntrack.Selection, func(conntrack.Connection)) (time.Duration, error)
	watch       func(context.Context, int, func(), func(conntrack.Connection)) error

	// ledgerMu is held while the table is read, which takes long on a busy node.
	ledgerMu sync.Mutex
	ledger   *ledger
	kinds    kinds
	tries    *notify.Mailbox[[]dataplane.Attempt]
	// costs are those of the last few looks, and doubtful how many endpoints these asked for.
	costs    []time.Duration
	doubtful int

	mu      sync.Mutex
	reports map[To]Report       // of the ledger
	at      map[netip.Addr][]To // which reports are of an address
	summary Summary
}

// Summary is how good the evidence is.
type Summary struct {
	// At is when the table was last looked at, zero if it never was; Interval is the time
	// between looks, and Cost the CPU time of the last one.
	At             time.Time
	Interval, Cost time.Duration
	// Err is why the last look failed, and Blind why resets are not seen.
	Err, Blind error
}

// New returns a Sensor that knows nothing until Run.
func New(o Options) *Sensor {
	o.Clock = cmp.Or[clock.Clock](o.Clock, clock.RealClock{})
	s := &Sensor{Options: o, connections: conntrack.Connections, watch: conntrack.WatchUnreplied, ledger: newLedger(), tries: notify.NewMailbox[[]dataplane.Attempt]()}
	s.forgetReports()
	return s
}

// Run watches until ctx is done, and then returns nil. It is called once.
func (s *Sensor) Run(ctx context.Context) error {
	var listener sync.WaitGroup
	listener.Go(func() { s.listen(ctx) })
	listener.Go(func() { s.followTries(ctx) })
	defer listener.Wait()
	for {
		interval := s.look(ctx)
		s.OnLook()
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(interval):
		}
	}
}

// look reads the table, and returns when to do so again.
func (s *Sensor) look(ctx context.Context) time.Duration {
	s.ledgerMu.Lock()
	defer s.ledgerMu.Unlock()
	s.updateKinds()
	cost, err := s.readTable(ctx)
	now := s.Clock.Now()
	s.costs = append(s.costs, cost)
	s.costs = s.costs[max(0, len(s.costs)-fewLooks):]
	interval := min(max(costFactor*slices.Min(s.costs), minInterval), maxInterval)
	if err != nil {
		s.ledger.forgetLook()
	} else {
		s.ledger.look(now)
	}
	s.publish(func() {
		s.summary.Interval, s.summary.Cost, s.summary.Err = interval, cost, err
		if err != nil {
			return
		}
		s.summary.At = now
		s.forgetReports()
		for to, r := range s.ledger.records {
			s.setReport(to, r.Report)
		}
	})
	if err != nil && ctx.Err() == nil {
		s.Logger.V(2).Info("Cannot see which endpoints answer", "err", err.Error())
	}
	return interval
}

// readTable reads the connections without an answer, and those of endpoints in doubt: one by
// one if they are few, because the kernel sends a small part of the table then.
func (s *Sensor) readTable(ctx context.Context) (cost time.Duration, err error) {
	read := func(which conntrack.Selection) bool {
		var more time.Duration
		more, err = s.connections(ctx, s.NetNS, which, func(c conntrack.Connection) {
			if !s.kinds.direct(&c) {
				s.ledger.see(s.kinds.to(&c), s.entry(&c))
			}
		})
		cost += more
		return err == nil
	}
	doubtful := s.ledger.doubtful()
	if n := min(len(doubtful), maxDoubtful+1); n != s.doubtful {
		s.doubtful, s.costs = n, nil
	}
	if len(doubtful) > maxDoubtful {
		read(conntrack.Selection{})
		return cost, err
	}
	if !read(conntrack.Selection{Unreplied: true}) {
		return cost, err
	}
	for _, addr := range doubtful {
		if !read(conntrack.Selection{Endpoint: addr, Replied: true}) {
			break
		}
	}
	return cost, err
}

func (s *Sensor) publish(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// refused counts a connection that ended without an answer.
func (s *Sensor) refused(c conntrack.Connection) {
	s.ledgerMu.Lock()
	defer s.ledgerMu.Unlock()
	s.updateKinds()
	if s.kinds.direct(&c) {
		return
	}
	to := s.kinds.to(&c)
	s.report(to, s.ledger.ended(to, s.entry(&c), s.Clock.Now()))
}

// report publishes what is known of an endpoint, if it is something new.
func (s *Sensor) report(to To, r *Report) {
	if r == nil {
		return
	}
	s.publish(func() { s.setReport(to, *r) })
}

func (s *Sensor) forgetReports() { s.reports, s.at = map[To]Report{}, map[netip.Addr][]To{} }

func (s *Sensor) setReport(to To, r Report) {
	if _, known := s.reports[to]; !known {
		s.at[to.Addr()] = append(s.at[to.Addr()], to)
	}
	s.reports[to] = r
}

// maxTries is how many attempts of the proxy itself wait to be added.
const maxTries = 1 << 12

// Tried adds an attempt of the proxy itself to connect to an endpoint, which connection tracking
// does not show. It does not block.
func (s *Sensor) Tried(a dataplane.Attempt) {
	if !connects(a.Protocol) {
		return
	}
	if a.Outcome == dataplane.Accepted && !s.doubts(To{AddrPort: a.Endpoint, Protocol: a.Protocol}) && len(s.tries.Signal) == 0 {
		return
	}
	s.tries.Put(func(all *[]dataplane.Attempt) bool {
		if len(*all) < maxTries { // some of very many: the verdict is the same
			*all = append(*all, a)
		}
		return true
	})
}

// doubts reports whether answers of an endpoint are of interest, to clients of any kind.
func (s *Sensor) doubts(to To) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, to.From = range []plan.Client{plan.PodClient, plan.NodeClient, plan.OutsideClient} {
		if _, known := s.reports[to]; known {
			return true
		}
	}
	return false
}

// followTries adds attempts to the ledger.
func (s *Sensor) followTries(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.tries.Signal:
			s.addTries()
		}
	}
}

func (s *Sensor) addTries() {
	s.ledgerMu.Lock()
	defer s.ledgerMu.Unlock()
	s.updateKinds()
	for _, a := range s.tries.Take() {
		to := s.kinds.of(a.Client.Addr(), a.Endpoint, a.Protocol)
		s.report(to, s.ledger.try(to, a, s.Clock.Now()))
	}
}

// listen counts connections that are refused.
func (s *Sensor) listen(ctx context.Context) {
	var tries backoff.Tries
	for ctx.Err() == nil {
		err := s.watch(ctx, s.NetNS, func() { s.publish(func() { s.summary.Blind = nil }) }, s.refused)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, conntrack.ErrMissed) {
			continue // some of very many: the verdict is the same
		}
		pause, news := tries.Fail(err, s.Clock.Now())
		if news {
			s.Logger.V(2).Info("Cannot see which connections are refused by endpoints", "err", err.Error())
		}
		s.publish(func() { s.summary.Blind = err })
		select {
		case <-ctx.Done():
		case <-s.Clock.After(pause):
		}
	}
}

// Report returns what is known of an endpoint.
func (s *Sensor) Report(to To) Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reports[to]
}

// ReportIn returns what is known of an endpoint at some ports together: silence at one of them. Which of many ports
// a program listens on is its own affair, so that resets tell nothing. Answers at other ports are not known, and the
// same port is rarely tried again: only what was just met counts.
func (s *Sensor) ReportIn(to To, ports model.PortRange) (out Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Clock.Now()
	for _, at := range s.at[to.Addr()] {
		r := s.reports[at]
		asked := at.Protocol == to.Protocol && at.From == to.From && ports.Contains(at.Port())
		if !asked || r.State == Fine || r.Failed == r.Refused || now.Sub(r.LastFailure) > staleInRange {
			continue
		}
		if out.Failed == 0 || r.Since.Before(out.Since) {
			out.Since = r.Since
		}
		out.State, out.Failed = Flaky, out.Failed+r.Failed-r.Refused
		out.LastFailure = slices.MaxFunc([]time.Time{out.LastFailure, r.LastFailure}, time.Time.Compare)
	}
	return out
}

// All returns what is known of all endpoints that clients connect to.
func (s *Sensor) All() map[To]Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.reports)
}

// Summary returns how good the evidence is.
func (s *Sensor) Summary() Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.summary
}

func (s *Sensor) entry(c *conntrack.Connection) connection {
	return connection{attempt{c.ID, c.Client}, c.Replied, s.Clock.Now().Add(c.Lasts)}
}

// kinds tells the kinds of clients apart.
type kinds struct {
	version  uint64 // of the engine's view
	settings plan.Settings
	node     map[netip.Addr]struct{} // addresses of the node
}

// updateKinds takes over who the clients are. If that differs from what it was, such as before the
// first objects arrived, what was found out about their kinds is forgotten.
func (s *Sensor) updateKinds() {
	before := s.kinds
	s.Engine.Inspect(func(v engine.View) {
		if v.Version == before.version {
			return
		}
		s.kinds = kinds{v.Version, v.Desired.Settings, map[netip.Addr]struct{}{}}
		own := slices.Clone(v.State.HostIPs())
		if n := v.State.Node(); n != nil {
			own = append(own, n.IPs...)
		}
		for _, ip := range own {
			s.kinds.node[ip] = struct{}{}
		}
	})
	if !s.kinds.same(&before) {
		before := s.ledger.before
		s.ledger = newLedger()
		s.ledger.before = before
		s.publish(s.forgetReports)
	}
}

func (k *kinds) same(o *kinds) bool {
	for _, f := range model.Families {
		a, b := k.settings.Detector(f), o.settings.Detector(f)
		if a.Interface != b.Interface || a.InterfacePrefix != b.InterfacePrefix || !slices.Equal(a.Sources, b.Sources) {
			return false
		}
	}
	return maps.Equal(k.node, o.node)
}

func (k *kinds) own(addr netip.Addr) bool {
	_, own := k.node[addr]
	return own || addr.IsLoopback()
}

// direct reports whether the node itself connects to an endpoint, by no Service: it is a probe of
// the kubelet, or a connection of the proxy, which tells Tried how it ends.
func (k *kinds) direct(c *conntrack.Connection) bool {
	return c.Frontend == c.Endpoint && k.own(c.Client.Addr())
}

// to returns whom a connection is to, and from which kind of client.
func (k *kinds) to(c *conntrack.Connection) To {
	return k.of(c.Client.Addr(), c.Endpoint, c.Protocol)
}

func (k *kinds) of(client netip.Addr, endpoint netip.AddrPort, p model.Protocol) To {
	return To{AddrPort: endpoint, Protocol: p, From: k.settings.Client(client, "", k.own(client))}
}
