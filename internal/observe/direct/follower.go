//go:build linux

package direct

import (
	"context"
	"errors"
	"fmt"
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
	"sluice/internal/kernel/neighbour"
	"sluice/internal/model"
	"sluice/internal/plan"
)

const (
	// period is how often answers to probes are looked for while some are awaited, and mendPeriod how often
	// it is looked whether another program has changed the rules.
	period     = 200 * time.Millisecond
	mendPeriod = 10 * time.Second
	// askPeriod is how often the kernel is asked to find the address of a neighbour that does not answer.
	askPeriod = 5 * time.Second
)

// Options configures a Follower.
type Options struct {
	Logger    logr.Logger
	Clock     clock.WithTicker // nil for the real one
	Dataplane dataplane.DirectReturner
	Sink      model.Sink
	// Probed is called when a probe was answered, or not; nil for nobody.
	Probed func(answered bool)
	// Counted is called now and then with what was handed on since; nil for nobody.
	Counted func(dataplane.Handed)
}

// Follower keeps the dataplane informed of the other nodes, and of the frontends with direct return.
type Follower struct {
	Options
	wake       notify.Signal
	neighbours *neighbour.Table

	mu        sync.Mutex
	begun     bool // what waited at the start is in the kernel
	settings  *plan.Settings
	frontends map[plan.Key]*plan.Frontend
	changed   map[plan.Key]struct{}
	failure   error
	received  map[string]uint64

	// All below belongs to the goroutine of Run.
	paths   map[netip.Addr]*path
	prober  prober
	applied *dataplane.Direct
	mended  time.Time
	tries   backoff.Tries
}

// New returns a Follower that does nothing until Run.
func New(o Options) *Follower {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Probed == nil {
		o.Probed = func(bool) {}
	}
	if o.Counted == nil {
		o.Counted = func(dataplane.Handed) {}
	}
	return &Follower{Options: o, wake: notify.NewSignal(), neighbours: neighbour.New(),
		frontends: map[plan.Key]*plan.Frontend{}, changed: map[plan.Key]struct{}{}, paths: map[netip.Addr]*path{}}
}

// Committed implements engine.Observer.
func (f *Follower) Committed(c *engine.Commit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wake := f.settings == nil
	if f.settings == nil || c.Change.Settings != nil {
		settings := c.Desired.Settings
		f.settings, wake = &settings, true
	}
	for before, now := range c.Change.Frontends() {
		if before != nil && before.Direct != nil && (now == nil || now.Key != before.Key || now.Direct == nil) {
			delete(f.frontends, before.Key)
			f.changed[before.Key] = struct{}{}
			wake = true
		}
		if now != nil && now.Direct != nil {
			f.frontends[now.Key] = now
			f.changed[now.Key] = struct{}{}
			wake = true
		}
	}
	// Until all is there it is not known what of an earlier process is still needed.
	wake = wake || !f.begun && c.Waiting == 0
	if f.begun = f.begun || c.Waiting == 0; f.begun && wake {
		f.wake.Notify()
	}
}

// Err returns why direct return does not work on this node, nil if it does or is switched off.
func (f *Follower) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

// Run works until ctx is done, and then returns nil. It is called once. What the kernel has stays.
func (f *Follower) Run(ctx context.Context) error {
	defer f.prober.close()
	var followers sync.WaitGroup
	defer followers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	following := false
	timer := f.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		case <-f.neighbours.Changed:
		case <-timer.C():
		}
		if !following && f.on() {
			following = true
			followers.Go(func() { _ = f.neighbours.Run(ctx) })
			select {
			case <-f.neighbours.Ready: // or packets would not be handed on until it is known who is there
			case <-ctx.Done():
				return nil
			}
		}
		wait := f.step(ctx)
		timer.Stop()
		timer = f.Clock.NewTimer(wait)
	}
}

// Received returns how many connections each of the other nodes has handed to this one.
func (f *Follower) Received() map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.received)
}

// count adds what was handed on since the last time. Nodes that are gone are forgotten.
func (f *Follower) count(ctx context.Context) {
	since, err := f.Dataplane.Handed(ctx)
	if err != nil {
		return // the next time
	}
	all := map[string]uint64{}
	f.mu.Lock()
	for name, n := range since.From {
		all[name] = f.received[name] + n
	}
	f.received = all
	f.mu.Unlock()
	f.Counted(since)
}

// on reports whether direct return is switched on.
func (f *Follower) on() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settings != nil && f.settings.DirectReturn != nil
}

// step does what is due, and returns for how long nothing else is.
func (f *Follower) step(ctx context.Context) time.Duration {
	now := f.Clock.Now()
	f.mu.Lock()
	settings, changed, begun := f.settings, maps.Clone(f.changed), f.begun
	frontends := maps.Clone(f.frontends)
	f.mu.Unlock()
	if settings == nil || !begun {
		return time.Hour
	}
	if !f.tries.Due(now) {
		return period
	}
	if settings.DirectReturn == nil {
		if err := f.report(ctx, f.Dataplane.Direct(ctx, nil), now); err != nil {
			return period
		}
		f.applied, f.paths = nil, map[netip.Addr]*path{}
		f.count(ctx) // nothing any more
		f.done(changed, frontends)
		return time.Hour
	}
	want, err := f.want(settings)
	if err == nil {
		err = f.look(ctx, want, settings.DirectReturn, now)
	}
	if err == nil {
		want.Frontends, want.Changed = frontends, changed
		if now.Sub(f.mended) >= mendPeriod || len(changed) > 0 || f.applied == nil || !same(f.applied, want) {
			if err = f.Dataplane.Direct(ctx, want); err == nil {
				f.applied, f.mended = want, now
				if len(changed) > 0 { // new ones begin then
					f.mended = now.Add(dataplane.DirectDelay - mendPeriod)
				}
				f.done(changed, frontends)
				f.count(ctx)
			}
		}
	}
	if f.report(ctx, err, now) != nil {
		return period
	}
	f.tell(now)
	return f.next(now)
}

// done records that changes are in the kernel.
func (f *Follower) done(changed map[plan.Key]struct{}, written map[plan.Key]*plan.Frontend) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := map[plan.Key]struct{}{}
	for k := range f.changed {
		if _, is := changed[k]; !is || f.frontends[k] != written[k] {
			rest[k] = struct{}{}
		}
	}
	f.changed = rest
}

// report remembers an error, and logs it once.
func (f *Follower) report(ctx context.Context, err error, now time.Time) error {
	if ctx.Err() != nil {
		return err
	}
	if err == nil {
		f.tries.Succeed()
	} else {
		f.tries.Fail(err, now)
	}
	before := f.Err()
	f.mu.Lock()
	f.failure = err
	f.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		f.Logger.Error(err, "Packets are not handed to other nodes as they should be")
	}
	return err
}

// want returns what the dataplane needs to know of this node.
func (f *Follower) want(settings *plan.Settings) (*dataplane.Direct, error) {
	self, link, err := Link(settings.DirectReturn)
	if err != nil {
		return nil, err
	}
	d := &dataplane.Direct{Node: self.Name, Device: link.Name, Index: link.Index,
		NoIPv6: settings.NoIPv6, NodePortIPs: settings.NodePortIPs, MasqueradeMark: settings.MasqueradeMark}
	if slices.Contains(link.Addrs, self.IPv4.Addr) {
		d.IPv4 = self.IPv4.Addr
	}
	if slices.Contains(link.Addrs, self.IPv6.Addr) {
		d.IPv6 = self.IPv6.Addr
	}
	return d, nil
}

// Link returns this node, and the interface through which packets come and are handed on.
func Link(r *plan.DirectReturn) (self *plan.DirectNode, link neighbour.Link, err error) {
	for i := range r.Nodes {
		if r.Nodes[i].Self {
			self = &r.Nodes[i]
		}
	}
	if self == nil {
		return nil, link, errors.New("the addresses of this node are not known: its Node object is missing")
	}
	own := []netip.Addr{self.IPv4.Addr, self.IPv6.Addr}
	if r.Device != "" {
		link, err = neighbour.LinkNamed(r.Device)
	} else {
		link, err = neighbour.LinkWith(own)
	}
	if errors.Is(err, neighbour.ErrNoLink) {
		err = noDevice(r.Device, own)
	}
	return self, link, err
}

func noDevice(device string, own []netip.Addr) error {
	if device != "" {
		return fmt.Errorf("there is no network interface %s", device)
	}
	return fmt.Errorf("no network interface has an address of the Node object (%v)", own)
}

// look finds out what is known of the ways to other nodes, sends probes that are due, and adds the nodes.
func (f *Follower) look(ctx context.Context, d *dataplane.Direct, r *plan.DirectReturn, now time.Time) error {
	paths := map[netip.Addr]*path{}
	var fresh []netip.Addr
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if n.Self {
			continue
		}
		for _, family := range model.Families {
			addr := n.Path(family).Addr
			if !addr.IsValid() || !d.Addr(family).IsValid() {
				continue
			}
			p := f.paths[addr]
			if p == nil {
				p = &path{addr: addr, due: now}
			}
			paths[addr] = p
			f.approach(p, d, now)
			if p.awaited || p.proof.Foreign.IsZero() && p.missed == 0 {
				fresh = append(fresh, addr)
			}
		}
	}
	f.forget(paths)
	if len(fresh) > 0 {
		proofs, err := f.Dataplane.Proofs(ctx, fresh)
		if err != nil {
			return err
		}
		for _, addr := range fresh {
			if p := paths[addr]; p.answered(proofs[addr], now) {
				f.Probed(p.missed == 0)
			}
		}
	}
	for i := range r.Nodes {
		if n := &r.Nodes[i]; !n.Self {
			d.Peers = append(d.Peers, dataplane.DirectPeer{Name: n.Name, IPs: n.IPs,
				IPv4: f.pathOf(n, d, model.IPv4, now), IPv6: f.pathOf(n, d, model.IPv6, now)})
		}
	}
	return f.probe(d, now)
}

// approach finds out whether a node is on the link and answers there.
func (f *Follower) approach(p *path, d *dataplane.Direct, now time.Time) {
	if routes := f.neighbours.Routes(); p.routes != routes {
		p.routes, p.onLink = routes, neighbour.OnLink(d.Index, p.addr)
	}
	mac := f.neighbours.MAC(d.Index, p.addr)
	if mac != p.mac && mac != (dataplane.MAC{}) && p.mac != (dataplane.MAC{}) || mac == (dataplane.MAC{}) && p.mac != mac {
		p.restart(now) // another machine, or none
	}
	p.mac = mac
	if p.onLink && mac == (dataplane.MAC{}) && now.Sub(p.asked) >= askPeriod {
		p.asked = now
		if err := neighbour.Ask(d.Index, p.addr); err != nil {
			f.Logger.V(1).Info("A neighbour is not asked for", "reason", err.Error())
		}
	}
}

// pathOf returns what the dataplane needs to know.
func (f *Follower) pathOf(
	n *plan.DirectNode, d *dataplane.Direct, family model.Family, now time.Time,
) dataplane.DirectPath {
	out := dataplane.DirectPath{Addr: n.Path(family).Addr}
	if p := f.paths[out.Addr]; p != nil && p.onLink && d.Addr(family).IsValid() {
		out.MAC, out.Usable = p.mac, p.proven(now)
	}
	return out
}

// probe sends the probes that are due, after the dataplane knows who is asked: it takes no answer from others.
func (f *Follower) probe(d *dataplane.Direct, now time.Time) error {
	if f.applied == nil {
		return nil
	}
	for _, p := range f.paths {
		if !p.wantsProbe(now) {
			continue
		}
		err := f.prober.send(d.Addr(model.FamilyOf(p.addr)), p.addr)
		p.probed(now)
		if err != nil {
			f.Logger.V(1).Info("A node is not probed", "reason", err.Error())
		}
	}
	return nil
}

// forget takes over the paths that there are.
func (f *Follower) forget(paths map[netip.Addr]*path) {
	for addr, p := range f.paths {
		if paths[addr] == nil && p.told != model.PathUnknown {
			f.Sink.Update(model.SetPaths{Paths: []model.Path{{Addr: addr}}})
		}
	}
	f.paths = paths
}

// tell tells plan what changed.
func (f *Follower) tell(now time.Time) {
	var changed []model.Path
	for _, p := range f.paths {
		if is := p.state(now); is != p.told {
			p.told = is
			changed = append(changed, model.Path{Addr: p.addr, State: is})
		}
	}
	if len(changed) > 0 {
		slices.SortFunc(changed, func(a, b model.Path) int { return a.Addr.Compare(b.Addr) })
		f.Sink.Update(model.SetPaths{Paths: changed})
	}
}

// next returns for how long nothing is due.
func (f *Follower) next(now time.Time) time.Duration {
	wait := max(f.mended.Add(mendPeriod).Sub(now), period)
	for _, p := range f.paths {
		switch {
		case p.awaited:
			wait = min(wait, period)
		case p.onLink && p.mac == (dataplane.MAC{}):
			wait = min(wait, askPeriod)
		case p.onLink:
			wait = min(wait, max(p.due.Sub(now), period/10))
		}
	}
	return wait
}

// same reports whether the dataplane knows all but the frontends already.
func same(a, b *dataplane.Direct) bool {
	return a.Node == b.Node && a.Device == b.Device && a.Index == b.Index && a.IPv4 == b.IPv4 && a.IPv6 == b.IPv6 &&
		a.NoIPv6 == b.NoIPv6 && a.MasqueradeMark == b.MasqueradeMark && slices.Equal(a.NodePortIPs, b.NodePortIPs) &&
		slices.EqualFunc(a.Peers, b.Peers, func(a, b dataplane.DirectPeer) bool {
			return a.Name == b.Name && a.IPv4 == b.IPv4 && a.IPv6 == b.IPv6 && slices.Equal(a.IPs, b.IPs)
		})
}
