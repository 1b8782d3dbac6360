package conntrack

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/backoff"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/notify"
)

const (
	// settle is how long a pass waits after a commit: packets that were on
	// their way through the old rules enter the table a moment later.
	settle = 10 * time.Millisecond
	// rest is the least time between two passes, and restFactor how much longer
	// it is than the processor time of a pass, so that passes take a tenth of one
	// core at most. What a pass takes on the clock would not do: a busy machine
	// makes the smallest pass long, and would keep clients waiting for the next.
	rest       = 100 * time.Millisecond
	restFactor = 9
)

// protocols are those whose entries are looked at.
type protocols []model.Protocol

func (p protocols) include(one model.Protocol) bool { return slices.Contains(p, one) }

// with adds one, and leaves p as it is.
func (p protocols) with(one model.Protocol) protocols {
	if p.include(one) {
		return p
	}
	return append(slices.Clip(p), one)
}

func (p protocols) without(one model.Protocol) protocols {
	return slices.DeleteFunc(slices.Clone(p), func(p model.Protocol) bool { return p == one })
}

// Options is what a Reconciler is made of.
type Options struct {
	Logger logr.Logger
	Clock  clock.Clock // nil for the real one

	// Engine lends out what is planned by now, of which some may not be committed
	// yet.
	Engine engine.Inspector

	// OnPass is told of each pass; nil if nobody wants to know.
	OnPass func(Pass)

	// ResetTCP has TCP connections to endpoints that left reset.
	ResetTCP bool

	// NetNS is the network namespace whose table it is, as an open file
	// descriptor; 0 for that of the process.
	NetNS int
}

// Reconciler removes stale entries from the connection tracking table.
type Reconciler struct {
	log    logr.Logger
	clock  clock.Clock
	engine engine.Inspector
	onPass func(Pass)
	tracks protocols
	// sweep removes entries of some protocols from the table; a field for tests.
	sweep func(context.Context, protocols, func(*flow) bool) (sweepResult, error)
	// tcpLoose tells whether the kernel tracks TCP connections that it meets half
	// way; a field for tests.
	tcpLoose func() (bool, error)
	// isLocal asks the kernel whether its routing table calls an address local; a
	// field for tests.
	isLocal func(netip.Addr) (bool, error)

	pending *notify.Mailbox[pending]

	// All below belongs to the goroutine of Run.

	index      *index
	localCache localCache
	due        protocols // of which entries may be stale
	notBefore  time.Time
	tries      backoff.Tries // to make a pass
	lastLogged string        // the last about resets
}

// New returns a Reconciler that does nothing until Run.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.OnPass == nil {
		o.OnPass = func(Pass) {}
	}
	tracks := protocols{model.UDP}
	if o.ResetTCP {
		tracks = tracks.with(model.TCP)
	}
	k := kernel{o.NetNS}
	r := &Reconciler{
		log:      o.Logger,
		clock:    o.Clock,
		engine:   o.Engine,
		onPass:   o.OnPass,
		tracks:   tracks,
		sweep:    k.sweep,
		tcpLoose: k.tcpLoose,
		isLocal:  k.isLocal,
		pending:  notify.NewMailbox[pending](),
	}
	r.index = newIndex(r.local)
	return r
}

// Committed takes note of a commit. After a full one the entries of all frontends
// are looked at, not only after a change that can have made some of them stale: the
// kernel may have done without what is ours for a while.
func (r *Reconciler) Committed(c *engine.Commit) {
	r.pending.Put(func(p *pending) bool {
		p.add(c.Change, c.Result.Failed, r.tracks)
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

// wait returns when there is something to look at and a pass may begin, or with
// false when ctx is done.
func (r *Reconciler) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-r.pending.Signal:
		return r.sleep(ctx, r.notBefore.Sub(r.clock.Now()))
	}
}

func (r *Reconciler) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := r.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// absorb takes in what was committed, and tells whether a pass is due.
func (r *Reconciler) absorb() bool {
	p := r.pending.Take()
	for _, one := range p.apply(r.index, r.tracks) {
		r.due = r.due.with(one)
	}
	if r.index.empty() {
		r.due = nil
		r.index.forget()
	}
	return len(r.due) > 0
}
