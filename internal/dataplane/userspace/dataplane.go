//go:build linux

package userspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/printable"
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/dataplane/relay"
	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Dataplane forwards connections, and programs the table that leads them here. It
// implements dataplane.Dataplane.
type Dataplane struct {
	*nftables.Dataplane // the table
	*witness

	logger      logr.Logger
	netns       int
	ports       dataplane.PortRange
	settings    dataplane.Forwarding
	translation *ctnetlink.Conn
	directory   *directory
	counters    counters
	budget      *relay.Budget

	lifetime context.Context // of connections
	end      context.CancelFunc

	mu sync.Mutex
	// listening are the sockets in use, former those that were replaced and may still
	// have connections.
	listening [2]*sockets
	former    []*sockets
}

var (
	_ dataplane.Dataplane = (*Dataplane)(nil)
	_ dataplane.Forwarder = (*Dataplane)(nil)
	_ dataplane.Witness   = (*Dataplane)(nil)
)

func open(ctx context.Context, o dataplane.Options) (_ dataplane.Dataplane, err error) {
	budget, err := relay.ProcessBudget(0)
	if err != nil {
		return nil, err
	}
	d := &Dataplane{
		logger: o.Logger, netns: o.NetNS, ports: o.Ports, settings: o.Forwarding,
		directory: newDirectory(clock.RealClock{}), budget: budget, witness: newWitness(clock.RealClock{}),
	}
	d.lifetime, d.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if d.Dataplane, err = nftables.Open(ctx, o, newTarget(d.sockets)); err != nil {
		return nil, err
	}
	d.translation, err = ctnetlink.Dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Close ends all connections and leaves the table as it is.
func (d *Dataplane) Close() (err error) {
	d.mu.Lock()
	all := d.former
	for _, s := range d.listening {
		if s != nil {
			all = append(all, s)
		}
	}
	d.former, d.listening = nil, [2]*sockets{}
	d.mu.Unlock()
	for _, s := range all {
		s.close()
	}
	d.end()
	for _, s := range all {
		s.wait(context.Background())
	}
	if d.translation != nil {
		err = d.translation.Close()
	}
	if d.Dataplane != nil {
		err = errors.Join(err, d.Dataplane.Close())
	}
	return err
}

// Connections returns how many connections of TCP there are, and can be.
func (d *Dataplane) Connections() (now, limit int) { return d.budget.Connections() }

// Budget returns that of all connections of this process.
func (d *Dataplane) Budget() *relay.Budget { return d.budget }

// Watch replaces the endpoints that are watched. The kernel need not: what nftables mode left for that goes.
func (d *Dataplane) Watch(ctx context.Context, targets map[dataplane.Target]dataplane.OnTrial) error {
	return errors.Join(d.witness.Watch(ctx, targets), d.Dataplane.Watch(ctx, nil))
}

// tried tells of an attempt to connect to an endpoint.
func (d *Dataplane) tried(a dataplane.Attempt) {
	d.witness.tried(a)
	if d.settings.Tried != nil {
		d.settings.Tried(a)
	}
}

// Forwards reports whether connections are led to an address to be forwarded.
func (d *Dataplane) Forwards(at netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.listening {
		if s != nil && s.addr == at.Addr() && slices.Contains(s.ports[:], at.Port()) {
			return true
		}
	}
	return false
}

// Reconcile makes frontends known to the sockets before the table leads connections to
// them, and unknown only after it no longer does.
func (d *Dataplane) Reconcile(ctx context.Context, desired *plan.Desired) dataplane.Result {
	retire, err := d.prepare(&desired.Settings)
	if err != nil {
		return dataplane.Result{Err: err}
	}
	for _, f := range desired.Frontends {
		d.directory.set(f)
	}
	r := d.Dataplane.Reconcile(ctx, desired)
	if r.Err != nil {
		return r
	}
	d.directory.keep(desired.Frontends)
	retire()
	return d.unreachable(r, maps.Values(desired.Frontends))
}

// Apply does the same for a change.
func (d *Dataplane) Apply(ctx context.Context, change *plan.Change) dataplane.Result {
	retire := func() {}
	if change.Settings != nil {
		var err error
		if retire, err = d.prepare(change.Settings); err != nil {
			return dataplane.Result{Err: err}
		}
	}
	for _, f := range change.Set {
		d.directory.set(f)
	}
	r := dataplane.ApplyWhole(ctx, d.Dataplane, change)
	if r.Err != nil {
		return r
	}
	for _, k := range change.Removed {
		d.directory.remove(k)
	}
	retire()
	return d.unreachable(r, slices.Values(change.Set))
}

// prepare listens on the addresses of the settings. The function that it returns gives up
// those that are no longer used.
func (d *Dataplane) prepare(s *plan.Settings) (retire func(), err error) {
	d.directory.configure(s)
	var old []*sockets
	for i, family := range model.Families {
		ip := s.ProxyIP(family)
		now := d.listening[i]
		if now != nil && now.addr == ip {
			continue
		}
		var fresh *sockets
		if ip.IsValid() {
			if fresh, err = d.listen(ip); err != nil {
				return nil, err
			}
		}
		d.mu.Lock()
		d.listening[i] = fresh
		if now != nil {
			d.former = append(d.former, now)
			old = append(old, now)
		}
		d.mu.Unlock()
	}
	return func() {
		for _, s := range old {
			s.close()
		}
	}, nil
}

var errNoAddress = errors.New("the node has no address of this family on an interface, to which connections could be redirected: give it one, or use proxy mode nftables")

// unreachable adds the frontends that cannot be served for want of an address.
func (d *Dataplane) unreachable(r dataplane.Result, frontends func(func(*plan.Frontend) bool)) dataplane.Result {
	if d.listening[0] != nil && d.listening[1] != nil {
		return r
	}
	for f := range frontends {
		if !f.ProxyConnects || !f.HasEndpoints() || d.sockets(f.Family()) != nil {
			continue
		}
		if r.Failed == nil {
			r.Failed = map[plan.Key]error{}
		}
		r.Failed[f.Key] = errNoAddress
	}
	return r
}

// sockets returns those of a family, nil if there are none.
func (d *Dataplane) sockets(f model.Family) *sockets {
	for i, family := range model.Families {
		if family == f {
			return d.listening[i]
		}
	}
	return nil
}

const (
	// pollEvery is how often Finish looks around.
	pollEvery = 50 * time.Millisecond
	// successorTime is how long it takes at most until another process that waits for
	// this one to end takes its place.
	successorTime = 600 * time.Millisecond
	// takeoverTime is how long that needs to lead new connections to itself.
	takeoverTime = 3 * time.Second
)

// Finish serves until no connection is left, or ctx ends. While another process takes
// over, new connections are served as well.
func (d *Dataplane) Finish(ctx context.Context, succeeded func() bool) (left int) {
	deadline, waits := time.Now().Add(successorTime), true
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if waits && succeeded() {
			deadline, waits = time.Now().Add(takeoverTime), false
		}
		now, _ := d.budget.Connections()
		if now == 0 && time.Now().After(deadline) {
			return 0
		}
		select {
		case <-ctx.Done():
			return now
		case <-ticker.C:
		}
	}
}

// Describe reads the elements of one frontend from the table, and adds its endpoints
// and the connections that they have now.
func (d *Dataplane) Describe(ctx context.Context, at dataplane.Destination, client netip.Addr) (dataplane.Description, error) {
	out, err := d.Dataplane.Describe(ctx, at, client)
	if err != nil {
		return out, err
	}
	f := d.directory.copyOf(at.Key)
	if f == nil {
		return out, nil
	}
	out.Plan(f.Frontend)
	if endpoint, expires, ok := f.balancer.Remembered(client); ok {
		out.Remembered = append(out.Remembered, dataplane.Remembered{Endpoint: endpoint, Expires: expires})
	}
	total := 0
	var text []string
	connections := f.connections()
	for _, endpoint := range slices.SortedFunc(maps.Keys(connections), netip.AddrPort.Compare) {
		n := connections[endpoint]
		if total += n; len(text) < dataplane.MaxDescribed {
			text = append(text, fmt.Sprintf("%v has %d", endpoint, n))
		}
	}
	what := "forwards no connection now"
	if total > 0 {
		what = "forwards " + printable.Count(total, "connection") + " now: " + strings.Join(text, ", ")
	}
	out.Objects = append(out.Objects, dataplane.Object{Where: "the proxy itself", What: what})
	return out, nil
}
