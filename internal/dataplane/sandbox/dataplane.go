package sandbox

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/relay"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Options configures a Dataplane.
type Options struct {
	Logger logr.Logger
	// ResetRemoved resets TCP connections when their endpoint no longer serves.
	ResetRemoved bool
	// UDPTimeout is how long a UDP client keeps its endpoint without packets; 0 for the
	// default.
	UDPTimeout time.Duration
	// Tried is called after each attempt to connect to an endpoint; may be nil.
	Tried func(dataplane.Attempt)
	// Budget bounds the connections that are relayed at a time.
	Budget *relay.Budget
}

// Dataplane serves node ports by sockets of this process.
type Dataplane struct {
	Options
	lifetime context.Context // of connections
	end      context.CancelFunc
	running  sync.WaitGroup // of relays that are closed
	settings atomic.Pointer[plan.Settings]

	mu    sync.Mutex // guards what follows against those who only read
	known bool       // a Reconcile succeeded
	ports map[plan.Key]*port
	// gone counts the connections of ports that are gone, by family.
	gone map[model.Family]count
}

// New returns a Dataplane that serves nothing yet. When ctx ends, so do all connections.
func New(ctx context.Context, o Options) *Dataplane {
	d := &Dataplane{Options: o, ports: map[plan.Key]*port{}, gone: map[model.Family]count{}}
	d.lifetime, d.end = context.WithCancel(ctx)
	d.settings.Store(&plan.Settings{})
	return d
}

// Reconcile implements dataplane.Dataplane.
func (d *Dataplane) Reconcile(ctx context.Context, desired *plan.Desired) dataplane.Result {
	change := &plan.Change{Settings: &desired.Settings}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.ports {
		if desired.Frontends[key] == nil {
			change.Removed = append(change.Removed, key)
		}
	}
	for _, f := range desired.Frontends {
		change.Set = append(change.Set, f)
	}
	d.known = true
	return d.apply(ctx, change)
}

// Apply implements dataplane.Dataplane.
func (d *Dataplane) Apply(ctx context.Context, change *plan.Change) dataplane.Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known {
		return dataplane.Result{Err: dataplane.ErrUnknown}
	}
	return d.apply(ctx, change)
}

// apply stops to serve what is gone before it serves what is new: that may be at the
// same address.
func (d *Dataplane) apply(ctx context.Context, change *plan.Change) dataplane.Result {
	out := dataplane.Result{Transactions: 1, Failed: map[plan.Key]error{}}
	for _, key := range change.Removed {
		if p := d.ports[key]; p != nil {
			d.remove(p)
			out.Elements++
		}
	}
	touched := map[plan.Key]bool{}
	for _, f := range change.Set {
		if !f.NodePort() {
			continue // never planned in this mode
		}
		p := d.ports[f.Key]
		if p == nil {
			p = newPort(d, f.Key)
			d.ports[f.Key] = p
		}
		p.frontend = f
		touched[f.Key] = true
	}
	if change.Settings != nil {
		d.settings.Store(change.Settings)
		for key := range d.ports {
			touched[key] = true
		}
		for key := range touched { // an address may move from one port to another
			d.ports[key].leave(change.Settings.ListenAddrs(key.Family()))
		}
	}
	for key := range touched {
		if ctx.Err() != nil {
			return dataplane.Result{Err: ctx.Err()}
		}
		out.Elements++
		if err := d.ports[key].serve(d.settings.Load().ListenAddrs(key.Family())); err != nil {
			out.Failed[key] = err
		}
	}
	return out
}

func (d *Dataplane) remove(p *port) {
	p.leave(nil)
	family := p.key.Family()
	d.gone[family] = d.gone[family].plus(p.tally.read())
	delete(d.ports, p.key)
}

// outside reports whether a client is neither a pod nor this machine, as far as its
// address tells. The interface that it came through is not known.
func (d *Dataplane) outside(client netip.Addr) bool {
	s := d.settings.Load()
	return s.Client(client, "", client.IsLoopback() || slices.Contains(s.HostIPs, client)) == plan.OutsideClient
}

// Verify implements dataplane.Dataplane. Nobody else can change sockets of this process.
func (d *Dataplane) Verify(context.Context) (ok bool, err error) { return true, nil }

// Disturbed implements dataplane.Dataplane.
func (d *Dataplane) Disturbed() <-chan struct{} { return nil }

// Repair implements dataplane.Dataplane.
func (d *Dataplane) Repair(context.Context) dataplane.Result { return dataplane.Result{} }

// Close ends all connections, and releases all addresses.
func (d *Dataplane) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
	for _, p := range d.ports {
		d.remove(p)
	}
	d.running.Wait()
	return nil
}

// finishPoll is the time between two looks at the connections that are left.
const finishPoll = 20 * time.Millisecond

// Finish implements dataplane.Forwarder. It releases all addresses first, since two
// processes cannot listen on them.
func (d *Dataplane) Finish(ctx context.Context, _ func() bool) (left int) {
	d.mu.Lock()
	for _, p := range d.ports {
		d.remove(p)
	}
	d.mu.Unlock()
	for {
		left, _ = d.Budget.Connections()
		if left == 0 || ctx.Err() != nil {
			return left
		}
		time.Sleep(finishPoll)
	}
}

// Describe implements dataplane.Describer. The kernel's part are the sockets.
func (d *Dataplane) Describe(_ context.Context, at dataplane.Destination, _ netip.Addr) (dataplane.Description, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.ports[at.Key]
	if p == nil {
		return dataplane.Description{}, nil
	}
	f, n := p.frontend, p.tally.read()
	out := dataplane.Description{Counted: true, Connections: n.accepted, Refused: n.refused}
	for _, ip := range d.settings.Load().ListenAddrs(p.key.Family()) {
		what := "is not listened on"
		if r := p.relays[ip]; r != nil && r.Listening() {
			what = "is listened on"
			out.Present = true
		}
		where := netip.AddrPortFrom(ip, p.key.Port).String() + "/" + p.key.Protocol.String()
		out.Objects = append(out.Objects, dataplane.Object{Where: where, What: what})
	}
	out.Present = out.Present || !f.HasEndpoints() // nothing listens then
	out.Plan(f)
	return out, nil
}

// Traffic implements dataplane.TrafficReader. Connections that no endpoint took are
// among the attempts.
func (d *Dataplane) Traffic(_ context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.UnmatchedTraffic, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, p := range d.ports {
		n := p.tally.read()
		each(key, dataplane.Traffic{Attempts: n.accepted + n.refused, Connections: int64(n.accepted)})
	}
	return dataplane.UnmatchedTraffic{}, nil
}

// Count implements dataplane.Counter.
func (d *Dataplane) Count(_ context.Context, families []model.Family, add func(metric string, value float64, labels ...string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	open, sum := map[model.Family]int{}, map[model.Family]count{}
	for key, p := range d.ports {
		family := key.Family()
		sum[family] = sum[family].plus(p.tally.read())
		for _, r := range p.relays {
			if r.Listening() {
				open[family]++
			}
		}
	}
	for _, f := range families {
		n := sum[f].plus(d.gone[f])
		add(listening, float64(open[f]), f.String())
		add(connections, float64(n.accepted), f.String(), "served")
		add(connections, float64(n.refused), f.String(), "refused")
	}
}

// Forwards implements dataplane.Forwarder. Nothing is led to this process: clients connect to
// it.
func (d *Dataplane) Forwards(netip.AddrPort) bool { return false }

// Connections implements dataplane.Forwarder.
func (d *Dataplane) Connections() (now, limit int) { return d.Budget.Connections() }

var (
	_ dataplane.Forwarder     = (*Dataplane)(nil)
	_ dataplane.Describer     = (*Dataplane)(nil)
	_ dataplane.TrafficReader = (*Dataplane)(nil)
	_ dataplane.Counter       = (*Dataplane)(nil)
)
