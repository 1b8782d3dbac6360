//go:build linux

package conntrack

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/backoff"
	"sluice/internal/base/notify"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/plan"
)

const (
	// settle is the delay between a commit and a pass: packets that were
	// matched by the old rules enter the table a moment later.
	settle = 10 * time.Millisecond
	// rest is the minimum time between two passes, and restFactor how much
	// longer it is than the CPU time of a pass, so that passes take at most a
	// tenth of one core. Wall-clock time would not do: a busy machine makes the
	// smallest pass long, and would delay the next one.
	rest       = 100 * time.Millisecond
	restFactor = 9
)

// Engine is the part of engine.Engine that is read.
type Engine interface {
	engine.Inspector
	Unsettled(plan.Key) (engine.FrontendStatus, bool)
	Settled() bool
}

// Options configures a Reconciler.
type Options struct {
	Logger logr.Logger
	Clock  clock.Clock // nil for the real one

	// Engine gives access to the latest plan, and to what of it is not committed yet.
	Engine Engine

	// OnPass is called after each pass.
	OnPass func(Pass)

	// ResetTCP resets TCP connections to removed endpoints.
	ResetTCP bool

	// IsLocal asks the routing table whether an address is local, in the network namespace of the thread.
	IsLocal func(netip.Addr) (bool, error)

	// Forwards reports whether connections are led to an address to be forwarded by the
	// proxy; nil if none are.
	Forwards func(netip.AddrPort) bool

	// Forget, if it is not nil, makes the kernel forget connections that it remembers
	// elsewhere too, before their entries are deleted. It may delete the entries itself.
	Forget func(context.Context, []dataplane.Lost) error

	// NetNS is the network namespace of the table, as an open file descriptor;
	// 0 for that of the process.
	NetNS int
}

// Reconciler deletes stale entries from the connection tracking table.
type Reconciler struct {
	Options
	tracks kinds
	// sweep deletes stale entries of some kinds; a field for tests.
	sweep func(context.Context, kinds, func(*flow) bool) (sweepResult, error)
	// tcpLoose reports nf_conntrack_tcp_loose; a field for tests.
	tcpLoose func() (bool, error)
	// isLocal asks the routing table whether an address is local; a field for
	// tests.
	isLocal func(netip.Addr) (bool, error)

	pending *notify.Mailbox[pending]

	// All below belongs to the goroutine of Run.

	index      *index
	locals     locals
	due        kinds // whose entries may be stale
	notBefore  time.Time
	tries      backoff.Tries // of a pass
	lastLogged string        // by logOnce
}

// New returns a Reconciler that is idle until Run.
func New(o Options) *Reconciler {
	o.Clock = cmp.Or[clock.Clock](o.Clock, clock.RealClock{})
	tracks := kinds{allUDP, unansweredTCP}
	if o.ResetTCP {
		tracks = tracks.with(allTCP)
	}
	t := table{netns: o.NetNS, forget: o.Forget, local: o.IsLocal}
	r := &Reconciler{
		Options:  o,
		tracks:   tracks,
		sweep:    t.sweep,
		tcpLoose: t.tcpLoose,
		isLocal:  t.isLocal,
		pending:  notify.NewMailbox[pending](),
	}
	r.index = newIndex(r.local)
	if o.Forwards != nil {
		r.index.forwards = o.Forwards
	}
	return r
}

// Committed records a commit. After a full one all entries are examined: the
// kernel may have been without our rules for a while.
func (r *Reconciler) Committed(c *engine.Commit) {
	r.pending.Put(func(p *pending) bool {
		p.add(c.Change, c.Result.Failed)
		p.everything = p.everything || c.Full()
		return !p.empty()
	})
}

// Run works until ctx is done, and then returns nil. It is called once.
func (r *Reconciler) Run(ctx context.Context) error {
	for r.wait(ctx) {
		if !r.absorb() {
			continue
		}
		if !r.sleep(ctx, settle) {
			break
		}
		r.pass(ctx)
	}
	return nil
}

// wait returns true when there is something to examine and a pass may begin,
// and false when ctx is done.
func (r *Reconciler) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-r.pending.Signal:
		return r.sleep(ctx, r.notBefore.Sub(r.Clock.Now()))
	}
}

func (r *Reconciler) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := r.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// absorb processes what was committed, and reports whether a pass is due.
func (r *Reconciler) absorb() bool {
	p := r.pending.Take()
	for _, one := range p.apply(r.index, r.tracks) {
		if r.tracks.include(one) {
			r.due = r.due.with(one)
		}
	}
	if r.index.empty() {
		r.due = nil
		r.index.forget()
	}
	return len(r.due) > 0
}
