package conntrack

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"sluice/internal/engine"
	"sluice/internal/model"
)

// sweepResult is what a pass came across.
type sweepResult struct {
	seen, deleted int
	deletedIPv6   int           // of those deleted
	cost          time.Duration // of processor time
	provokeErr    error         // why ends of TCP connections were not told that they are reset
}

// Pass is what one pass over the table did.
type Pass struct {
	Duration    time.Duration
	Seen        int   // entries looked at
	Deleted     int   // entries removed
	DeletedIPv6 int   // those of them that were of IPv6
	Err         error // why it did not get to its end
}

// pass goes over the table once.
func (r *Reconciler) pass(ctx context.Context) {
	start := r.clock.Now()
	spared := 0
	r.localCache = localCache{}
	t, err := r.sweep(ctx, r.sweepable(), func(f *flow) bool {
		switch {
		case !r.index.stale(f):
			return false
		case r.isPlanned(f):
			spared++
			return false
		}
		return true
	})
	if err == nil {
		err = r.localCache.err
	}
	end := r.clock.Now()
	took := end.Sub(start)
	r.onPass(Pass{took, t.seen, t.deleted, t.deletedIPv6, err})
	if t.provokeErr != nil {
		r.logOnce(t.provokeErr, "Clients that only wait are not told that their connections are reset", remedyNetRaw)
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
	log := r.log.V(4)
	if t.deleted > 0 {
		log = r.log.V(2)
	}
	log.Info("Swept the connection tracking table", "seen", t.seen, "deleted", t.deleted, "duration", took)
}

const (
	remedyNetRaw = "give the proxy the capability NET_RAW"
	remedyLoose  = "set net.netfilter.nf_conntrack_tcp_loose to 1, or leave --reset-removed-endpoints out"
)

// sweepable are the protocols that are due. TCP connections are left alone where
// the kernel does not take up a connection half way: without its entry nobody
// would answer the client, which is worse than an endpoint that left.
func (r *Reconciler) sweepable() protocols {
	if !r.due.include(model.TCP) {
		return r.due
	}
	yes, err := r.tcpLoose()
	if err == nil && yes {
		return r.due
	}
	r.logOnce(err, "TCP connections to endpoints that left cannot be reset, and stay", remedyLoose)
	return r.due.without(model.TCP)
}

// logOnce logs what keeps connections from being reset, once.
func (r *Reconciler) logOnce(err error, what, remedy string) {
	text := fmt.Sprint(what, err)
	if text == r.lastLogged {
		return
	}
	r.lastLogged = text
	r.log.Error(err, what, "remedy", remedy)
}

// isPlanned tells whether a flow that should not be there is about to be right:
// a commit under way is in the kernel before it is known here, and its flows
// must not be taken for stale ones.
func (r *Reconciler) isPlanned(f *flow) (planned bool) {
	r.engine.Inspect(func(v engine.View) {
		frontend, _ := v.Desired.Lookup(f.key(), r.local)
		planned = frontend != nil && frontend.Serves(f.by)
	})
	return planned
}

// localCache is what the kernel said during a pass about addresses being local.
type localCache struct {
	known map[netip.Addr]bool
	err   error // the first that kept it from saying so
}

// local tells whether the routing table calls an address local. One of which that
// cannot be told is not taken for it: what goes there stays, until a pass succeeds.
func (r *Reconciler) local(addr netip.Addr) bool {
	l := &r.localCache
	yes, known := l.known[addr]
	if known {
		return yes
	}
	yes, err := r.isLocal(addr)
	if err != nil && l.err == nil {
		l.err = err
	}
	if l.known == nil {
		l.known = map[netip.Addr]bool{}
	}
	l.known[addr] = yes
	return yes
}

// lookAgain makes the next commit look at everything, should the plan that
// spared a flow not come true.
func (r *Reconciler) lookAgain() {
	r.pending.Put(func(p *pending) bool { p.everything = true; return false })
}

// fail has the pass made up for later. What is due stays due.
func (r *Reconciler) fail(now time.Time, err error) {
	pause, news := r.tries.Fail(err, now)
	if at := r.tries.Next(); at.After(r.notBefore) {
		r.notBefore = at
	}
	if news {
		r.log.Error(err, "Cannot sweep the connection tracking table", "retry", pause)
	} else {
		r.log.V(1).Info("Still cannot sweep the connection tracking table", "err", err.Error(),
			"failures", r.tries.Failures(), "retry", pause)
	}
	r.pending.Notify()
}
