package loopback

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/notify"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/plan"
)

// countEvery is how often packets are counted.
const countEvery = 2 * time.Second

// Unserved counts packets of programs on the node to node ports at loopback addresses at which these are
// not served, if that is wanted.
type Unserved struct {
	Logger  logr.Logger
	Clock   clock.Clock
	Counter dataplane.LoopbackCounter
	// Count is called with the number of packets since the last time.
	Count func(of dataplane.LoopbackPackets, packets uint64)

	changed *notify.Mailbox[bool]
	on      bool // something is counted; used by the engine's goroutine

	// The rest belongs to the goroutine of Run.
	settings plan.Settings
	ports    map[dataplane.LoopbackPort]struct{}
	last     map[dataplane.LoopbackPackets]uint64
	failing  bool
}

// NewUnserved returns an Unserved that counts nothing before Run.
func NewUnserved(u Unserved) *Unserved {
	u.changed = notify.NewMailbox[bool]()
	return &u
}

// Committed makes Run look at the node ports, if there are others.
func (u *Unserved) Committed(c *engine.Commit) {
	if s := c.Change.Settings; s != nil {
		u.on = s.UnservedLoopback != plan.UnservedPass
	}
	u.changed.Put(func(look *bool) bool {
		*look = *look || c.Change.Settings != nil || u.on && changesNodePorts(c.Change)
		return *look
	})
}

func changesNodePorts(c *plan.Change) bool {
	for before, now := range c.Frontends() {
		switch {
		case before == nil && now.NodePort(), now == nil && before.NodePort():
			return true
		}
	}
	return false
}

// Run counts until ctx ends. It is called once.
func (u *Unserved) Run(ctx context.Context, e engine.Inspector) error {
	for {
		var tick <-chan time.Time
		if len(u.ports) > 0 || u.failing {
			tick = u.Clock.After(countEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-u.changed.Signal:
			u.changed.Take()
			u.look(e)
			u.follow(ctx)
		case <-tick:
			if u.failing {
				u.follow(ctx)
			}
			u.count(ctx)
		}
	}
}

func (u *Unserved) look(e engine.Inspector) {
	u.ports = map[dataplane.LoopbackPort]struct{}{}
	e.Inspect(func(v engine.View) {
		u.settings = v.Desired.Settings
		if u.settings.UnservedLoopback == plan.UnservedPass {
			return
		}
		for key := range v.Desired.Frontends {
			if key.NodePort() && !u.settings.ServedAtLoopback(key) {
				of := dataplane.LoopbackPackets{Family: key.Family(), Protocol: key.Protocol}
				u.ports[dataplane.LoopbackPort{LoopbackPackets: of, Port: key.Port}] = struct{}{}
			}
		}
	})
}

func (u *Unserved) follow(ctx context.Context) {
	u.report(ctx, u.Counter.CountLoopback(ctx, u.ports, u.settings.UnservedLoopback == plan.UnservedReject))
}

func (u *Unserved) count(ctx context.Context) {
	now, err := u.Counter.LoopbackPackets(ctx)
	if err != nil {
		u.report(ctx, err)
		return
	}
	for of, packets := range now {
		if before := u.last[of]; packets > before {
			u.Count(of, packets-before)
		}
	}
	u.last = now
}

// report logs the first of a series of errors, after which everything is tried again.
func (u *Unserved) report(ctx context.Context, err error) {
	if err != nil && !u.failing && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
		u.Logger.Error(err, "Packets to node ports on loopback addresses cannot be counted; trying again")
	}
	u.failing = err != nil
}
