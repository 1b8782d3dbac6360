//go:build linux

package conntrack

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/engine"
	"sluice/internal/plan"
)

// sweepResult is what a sweep found and did.
type sweepResult struct {
	seen, deleted int
	deletedIPv6   int           // of those deleted
	cost          time.Duration // in CPU time
	provokeErr    error         // why ends of TCP connections were not provoked to reset them
}

// Pass is the result of one pass over the table.
type Pass struct {
	Duration    time.Duration
	Seen        int   // entries looked at
	Deleted     int   // entries deleted
	DeletedIPv6 int   // those of IPv6
	Err         error // why it is incomplete
}

// pass sweeps the table once.
func (r *Reconciler) pass(ctx context.Context) {
	start := r.Clock.Now()
	spared := 0
	r.locals = locals{known: map[netip.Addr]bool{}}
	judge := r.judge()
	t, err := r.sweep(ctx, r.sweepable(), func(f *flow) bool {
		stale, planned := judge(f)
		if stale && planned {
			spared++
		}
		return stale && !planned
	})
	if err == nil {
		err = r.locals.err
	}
	end := r.Clock.Now()
	took := end.Sub(start)
	r.OnPass(Pass{took, t.seen, t.deleted, t.deletedIPv6, err})
	if t.provokeErr != nil {
		r.logOnce(t.provokeErr, "Idle clients do not notice that their connections are reset", remedyNetRaw)
	}
	r.notBefore = end.Add(max(rest, restFactor*t.cost))
	if err != nil {
		if ctx.Err() == nil {
			r.fail(end, err)
		}
		return
	}
	r.due = nil
	r.tries.Succeed()
	r.index.forget()
	if spared > 0 {
		r.lookAgain()
	}
	log := r.Logger.V(4)
	if t.deleted > 0 {
		log = r.Logger.V(2)
	}
	log.Info("Swept the connection tracking table", "seen", t.seen, "deleted", t.deleted, "duration", took)
}

const (
	remedyNetRaw = "give the proxy the capability NET_RAW"
	remedyLoose  = "set net.netfilter.nf_conntrack_tcp_loose to 1, or leave --reset-removed-endpoints out"
)

// sweepable returns what is due. Established connections of TCP are left out if
// the kernel does not track those that it first sees (tcp_loose): without its
// entry a connection would get no answer at all, which is worse than one to a
// removed endpoint.
func (r *Reconciler) sweepable() kinds {
	if !r.due.include(allTCP) {
		return r.due
	}
	yes, err := r.tcpLoose()
	if err == nil && yes {
		return r.due.without(unansweredTCP) // which are among all
	}
	r.logOnce(err, "TCP connections to endpoints that left cannot be reset, and stay", remedyLoose)
	return r.due.without(allTCP)
}

// logOnce logs what prevents connections from being reset, unless it was logged
// last time.
func (r *Reconciler) logOnce(err error, what, remedy string) {
	text := fmt.Sprint(what, err)
	if text == r.lastLogged {
		return
	}
	r.lastLogged = text
	r.Logger.Error(err, what, "remedy", remedy)
}

// judge returns what reports whether a flow disagrees with what is programmed, and whether it agrees with
// the latest plan: a commit in progress is in the kernel before Committed is called, and its flows must
// not be deleted. It is called for each entry of the table, so it allocates nothing.
func (r *Reconciler) judge() func(*flow) (stale, planned bool) {
	var f *flow
	var stale, planned bool
	look := func(v engine.View) {
		r.index.ranges = v.Desired.Ranges
		if stale = r.index.stale(f, r.programmed(f, v.Desired)); stale {
			frontend, found := v.Desired.Lookup(f.key(), r.local)
			if !found && r.index.handed(f) {
				frontend = v.Desired.Frontends[f.nodePortKey()]
			}
			planned = frontend != nil && frontend.Serves(f.endpoint(frontend)) && !missesPool(frontend, f)
		}
	}
	return func(next *flow) (bool, bool) {
		f, planned = next, false
		r.Engine.Inspect(look)
		if r.locals.ask(r.isLocal) {
			r.Engine.Inspect(look)
		}
		return stale, planned
	}
}

// programmed returns the frontends that the kernel has, as far as a flow can meet them: those that are
// desired, unless one of them waits or was refused.
func (r *Reconciler) programmed(f *flow, desired *plan.Desired) map[plan.Key]*plan.Frontend {
	if len(r.index.refused) == 0 && r.Engine.Settled() { // as usual
		return desired.Frontends
	}
	keys := append([]plan.Key{f.key(), f.nodePortKey()}, r.index.rangesOf(f)...)
	if !slices.ContainsFunc(keys, r.differs) {
		return desired.Frontends
	}
	out := map[plan.Key]*plan.Frontend{}
	for _, key := range keys {
		now, found := desired.Frontends[key]
		if r.differs(key) {
			now, found = r.had(key)
		}
		if found {
			out[key] = now
		}
	}
	return out
}

// differs reports whether the kernel may have something else at a key than what is desired.
func (r *Reconciler) differs(key plan.Key) bool {
	_, refused := r.index.refused[key]
	_, unsettled := r.Engine.Unsettled(key)
	return refused || unsettled
}

// had returns what the kernel has instead, nil if that is not known, and whether it has anything.
func (r *Reconciler) had(key plan.Key) (f *plan.Frontend, found bool) {
	_, refused := r.index.refused[key]
	if s, _ := r.Engine.Unsettled(key); !refused && s.Phase == engine.Pending {
		return s.Before, s.Before != nil
	}
	return nil, true
}

// locals caches during a pass which addresses are local.
type locals struct {
	known   map[netip.Addr]bool
	missing netip.Addr // the engine must not wait for the answer
	err     error      // the first error
}

// local reports whether the routing table considers an address local. If that is unknown
// it returns false: flows to the address are kept until a pass succeeds.
func (r *Reconciler) local(addr netip.Addr) bool {
	yes, known := r.locals.known[addr]
	if !known {
		r.locals.missing = addr
	}
	return yes
}

// ask asks for what is missing, and reports whether anything was.
func (l *locals) ask(isLocal func(netip.Addr) (bool, error)) bool {
	if !l.missing.IsValid() {
		return false
	}
	yes, err := isLocal(l.missing)
	l.known[l.missing], l.missing = yes, netip.Addr{}
	l.err = cmp.Or(l.err, err)
	return true
}

// lookAgain makes the next pass examine everything, in case the plan that
// spared a flow is not committed.
func (r *Reconciler) lookAgain() {
	r.pending.Put(func(p *pending) bool { p.everything = true; return false })
}

// fail schedules a retry of the pass. What is due stays due.
func (r *Reconciler) fail(now time.Time, err error) {
	r.tries.Log(r.Logger, err, now, "sweep the connection tracking table", "")
	if at := r.tries.Next(); at.After(r.notBefore) {
		r.notBefore = at
	}
	r.pending.Notify()
}
