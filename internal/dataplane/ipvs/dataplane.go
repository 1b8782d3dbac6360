//go:build linux

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/base/notify"
	"sluice/internal/base/printable"
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/ipvs/leftover"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/kernel/localroute"
	"sluice/internal/kernel/netns"
	"sluice/internal/kernel/sysctl"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Dataplane programs IPVS and an nftables table. It implements dataplane.Dataplane.
type Dataplane struct {
	*nftables.Dataplane // the table

	logger logr.Logger
	// writer and reader are separate so that a long dump does not delay a change.
	writer, reader *ipvs.Conn
	netns          int

	disturbed notify.Signal
	// suspect says that IPVS or the routes may differ from the mirror.
	suspect atomic.Bool
	// afterStep is called after each step of a commit. Tests set it.
	afterStep func() error
	// stop ends the background tasks and waits for them.
	stop func()

	// commits are those of the engine, and what other goroutines do: drain servers, compare them
	// with the kernel, forget connections. Who commits uses the fields below. Others may read
	// servers, under the lock.
	commits  dataplane.Commits
	routes   *localroute.Table
	settings plan.Settings
	// frontends are all that the table serves, servers the virtual services that are
	// ours. They are nil while the contents of the kernel are unknown.
	frontends map[plan.Key]*plan.Frontend
	servers   map[ipvs.Key]*server
	// draining are servers with destinations that only keep their connections.
	draining map[ipvs.Key]struct{}
	// holders counts the servers at each address.
	holders map[netip.Addr]int
	// watchQueue are the servers to compare with the kernel next.
	watchQueue []ipvs.Key
}

var _ dataplane.Dataplane = (*Dataplane)(nil)

func open(ctx context.Context, o dataplane.Options) (_ dataplane.Dataplane, err error) {
	d := &Dataplane{
		logger: o.Logger, netns: o.NetNS, stop: func() {}, disturbed: notify.NewSignal(),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if d.Dataplane, err = nftables.Open(ctx, o, target); err != nil {
		return nil, err
	}
	if d.writer, err = dial(o.NetNS); err != nil {
		return nil, err
	}
	if d.reader, err = dial(o.NetNS); err != nil {
		return nil, err
	}
	if d.routes, err = leftover.OpenRoutes(o.NetNS); err != nil {
		return nil, err
	}
	if err := d.checkScheduler(ctx, o.IPVS.Scheduler); err != nil {
		return nil, err
	}
	timeouts := ipvs.Timeouts{TCP: o.IPVS.TCPTimeout, TCPFIN: o.IPVS.TCPFinTimeout, UDP: o.IPVS.UDPTimeout}
	if err := d.writer.SetTimeouts(timeouts); err != nil {
		return nil, err
	}
	err = netns.Do(o.NetNS, func() error {
		tune(o.Logger, o.IPVS.StrictARP)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := leftover.AddLink(o.NetNS); err != nil {
		o.Logger.V(1).Info("There is no link "+leftover.Link+", which only matters to programs that look for it", "reason", err.Error())
	}
	d.stop = dataplane.Background(d.forwardDisturbances, d.drainServers, d.watch)
	return d, nil
}

// Close closes the sockets and leaves the kernel as it is.
func (d *Dataplane) Close() (err error) {
	d.stop()
	for _, conn := range []*ipvs.Conn{d.reader, d.writer} {
		if conn != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	if d.routes != nil {
		d.routes.Close()
	}
	if d.Dataplane != nil {
		err = errors.Join(err, d.Dataplane.Close())
	}
	return err
}

// Disturbed receives when another program changed the table, IPVS or the routes.
func (d *Dataplane) Disturbed() <-chan struct{} { return d.disturbed }

// forwardDisturbances passes on those of the table.
func (d *Dataplane) forwardDisturbances(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.Dataplane.Disturbed():
			d.disturbed.Notify()
		}
	}
}

// Holds reports whether a virtual service is one of the Dataplane's. It may be any while
// the contents of the kernel are unknown.
func (d *Dataplane) Holds(k ipvs.Key) bool {
	d.commits.Lock()
	defer d.commits.Unlock()
	_, found := d.servers[k]
	return found || d.servers == nil
}

// families are those that the node supports.
func (d *Dataplane) families() []model.Family {
	return slices.DeleteFunc(slices.Clone(model.Families[:]), func(f model.Family) bool { return !d.settings.Serves(f) })
}

// Reconcile reads what is in the kernel, adopts what is right and changes the rest.
func (d *Dataplane) Reconcile(ctx context.Context, desired *plan.Desired) dataplane.Result {
	if err := d.commits.Turn(ctx); err != nil {
		return dataplane.Result{Err: err}
	}
	defer d.commits.End()
	d.suspect.Store(false)
	d.settings, d.frontends = desired.Settings, maps.Clone(desired.Frontends)
	d.setServers(nil)
	c := &commit{d: d, failed: map[plan.Key]error{}}
	live, err := d.Dataplane.Live(ctx)
	if err == nil {
		err = c.adopt(ctx)
	}
	if err == nil {
		err = d.routes.Read(model.Families[:])
	}
	if err != nil {
		d.setServers(nil)
		return dataplane.Result{Err: fmt.Errorf("reading what is in the kernel: %w", err)}
	}
	// While a table exists, frontends that are served by its endpoint maps change over
	// to IPVS without a gap if the destinations are there first. Without one nothing
	// is served yet.
	for _, s := range c.touched {
		s.late = !live
	}
	return c.run(ctx, func() dataplane.Result {
		if len(c.failed) == 0 {
			return d.Dataplane.Reconcile(ctx, desired)
		}
		rest := *desired
		rest.Frontends = maps.Clone(desired.Frontends)
		for k := range c.failed {
			delete(rest.Frontends, k)
		}
		return d.Dataplane.Reconcile(ctx, &rest)
	})
}

// Apply writes a change, in this order:
//
//   - New virtual services, without destinations.
//   - Destinations that come, of frontends that are served already.
//   - Routes that lead new addresses to the node.
//   - The table. From here on it decides on packets for new virtual services.
//   - Destinations of frontends that were not served before: IPVS would otherwise serve
//     them without the table's decisions.
//   - Destinations that go, which keep their connections, and routes.
func (d *Dataplane) Apply(ctx context.Context, change *plan.Change) dataplane.Result {
	if err := d.commits.Turn(ctx); err != nil {
		return dataplane.Result{Err: err}
	}
	defer d.commits.End()
	if d.servers == nil {
		return dataplane.Result{Err: dataplane.ErrUnknown}
	}
	c := &commit{d: d, failed: map[plan.Key]error{}}
	change, left := dataplane.Steps(change, d.Dataplane.Programmed)
	if change.Settings != nil {
		c.configure(*change.Settings)
	}
	for _, f := range change.Set {
		c.set(f.Key, f)
	}
	for _, k := range change.Removed {
		c.set(k, nil)
	}
	result := c.run(ctx, func() dataplane.Result {
		if len(c.failed) == 0 {
			return dataplane.ApplyWhole(ctx, d.Dataplane, change)
		}
		rest := *change
		rest.Set = slices.DeleteFunc(slices.Clone(change.Set), func(f *plan.Frontend) bool {
			_, failed := c.failed[f.Key]
			return failed
		})
		return dataplane.ApplyWhole(ctx, d.Dataplane, &rest)
	})
	for k := range result.Failed {
		delete(left, k)
	}
	result.Left = left
	return result
}

// Repair undoes foreign changes of the table, and of IPVS and the routes if some were
// found there.
func (d *Dataplane) Repair(ctx context.Context) dataplane.Result {
	if err := d.commits.Turn(ctx); err != nil {
		return dataplane.Result{Err: err}
	}
	defer d.commits.End()
	if d.servers == nil {
		return dataplane.Result{Err: dataplane.ErrUnknown}
	}
	if !d.suspect.Swap(false) {
		return d.Dataplane.Repair(ctx)
	}
	c := &commit{d: d, failed: map[plan.Key]error{}}
	err := c.adopt(ctx)
	if err == nil {
		err = d.routes.Read(model.Families[:])
	}
	if err != nil {
		d.suspect.Store(true)
		return dataplane.Result{Err: fmt.Errorf("reading what is in the kernel: %w", err)}
	}
	return c.run(ctx, func() dataplane.Result { return d.Dataplane.Repair(ctx) })
}

// dial opens IPVS, and has the kernel load it if it is missing.
func dial(ns int) (*ipvs.Conn, error) {
	conn, err := ipvs.Dial(ns)
	if errors.Is(err, ipvs.ErrAbsent) {
		if err := ipvs.LoadModule(ipvs.Module); err != nil {
			return nil, fmt.Errorf("loading the kernel module %s: %w", ipvs.Module, err)
		}
		conn, err = ipvs.Dial(ns)
	}
	if errors.Is(err, ipvs.ErrAbsent) {
		return nil, fmt.Errorf("%w: %w (load it on the node: modprobe %s, or use a kernel with CONFIG_IP_VS; or set mode: %s, which does not need it)",
			dataplane.ErrUnsupported, err, ipvs.Module, nftables.Mode.Name)
	}
	return conn, err
}

// checkScheduler returns an error if the kernel lacks a scheduler. It adds a virtual
// service by a mark that no packet has.
func (d *Dataplane) checkScheduler(ctx context.Context, scheduler string) error {
	if scheduler == "" {
		scheduler = defaultScheduler
	}
	// Services can ask for these.
	for _, name := range []string{"rr", "wrr", "lc", "wlc", scheduler} {
		if err := ipvs.LoadModule(ipvs.SchedulerModule(name)); err != nil {
			d.logger.V(1).Info("A kernel module may be missing", "module", ipvs.SchedulerModule(name), "reason", err.Error())
		}
	}
	if err := d.probe(ctx, model.IPv4, scheduler); err != nil {
		return fmt.Errorf("the IPVS scheduler %q cannot be used: %w (load it on the node: modprobe %s; or set ipvs.scheduler to another one, such as rr or lc; or set mode: %s)",
			scheduler, err, ipvs.SchedulerModule(scheduler), nftables.Mode.Name)
	}
	return nil
}

// probeMark is a packet mark that nobody sets.
const probeMark = 0x5e1f_7e57

func (d *Dataplane) probe(ctx context.Context, f model.Family, scheduler string) error {
	s := &ipvs.Service{Key: ipvs.Key{Addr: plan.NodePortKey(f, 0, 0).Addr, Mark: probeMark}, Scheduler: scheduler, Timeout: leftover.OwnerTimeout}
	b := &ipvs.Batch{}
	b.AddService(s)
	b.DeleteService(s.Key)
	err := d.writer.Commit(ctx, b)
	var refused ipvs.Refused
	if errors.As(err, &refused) {
		return refused[0].Err
	}
	return err
}

// CheckFamily reports whether IPVS supports a family.
func (d *Dataplane) CheckFamily(ctx context.Context, f model.Family) error {
	if err := d.probe(ctx, f, defaultScheduler); err != nil {
		return fmt.Errorf("IPVS of this kernel does not support %s: %w", f, err)
	}
	return nil
}

// drainInterval is the time between two looks at servers that drain, and watchInterval
// that between two comparisons of some servers with the kernel.
const (
	drainInterval = 5 * time.Second
	watchInterval = time.Second
)

func every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

// Describe reads the elements of one frontend from the table, and its virtual service.
func (d *Dataplane) Describe(ctx context.Context, at dataplane.Destination, client netip.Addr) (dataplane.Description, error) {
	out, err := d.Dataplane.Describe(ctx, at, client)
	if err != nil {
		return out, err
	}
	k := keyFor(at.Key, at.IP)
	service, there, err := d.reader.Service(ctx, k)
	if err != nil || !there || !leftover.Owned(service) {
		return out, err
	}
	destinations, err := d.reader.Destinations(ctx, k)
	if err != nil {
		return out, err
	}
	slices.SortFunc(destinations, compareDestinations)
	var text []string
	for _, dest := range destinations {
		if dest.Weight > 0 {
			out.RouteSize++
			if len(out.Route) < dataplane.MaxDescribed {
				out.Route = append(out.Route, dest.AddrPort)
			}
		}
		if len(text) < dataplane.MaxDescribed {
			text = append(text, fmt.Sprintf("%s weight %d, %s", dest.AddrPort, dest.Weight, printable.Count(dest.Connections(), "connection")))
		}
	}
	out.Objects = append(out.Objects, dataplane.Object{
		Where: "IPVS, virtual service " + k.String(),
		What:  "scheduler " + service.Scheduler + "; " + strings.Join(text, "; "),
	})
	return out, nil
}

// sysctls are those of the network namespace that the mode needs.
var sysctls = []sysctl.Setting{
	// Connections through IPVS are masqueraded and found by conntrack like all others.
	{File: "proc/sys/net/ipv4/vs/conntrack", Value: 1},
	// A connection whose destination was deleted ends, instead of waiting for it.
	{File: "proc/sys/net/ipv4/vs/expire_nodest_conn", Value: 1},
	// A client does not stay at a destination of weight 0 because of persistence, which
	// upstream's virtual services have.
	{File: "proc/sys/net/ipv4/vs/expire_quiescent_template", Value: 1},
	// Replies of pods are forwarded.
	{File: "proc/sys/net/ipv4/ip_forward", Value: 1},
}

// strictARP answers ARP requests for an address only on the interface that has it, and
// asks in the name of the best address.
var strictARP = []sysctl.Setting{
	{File: "proc/sys/net/ipv4/conf/all/arp_ignore", Value: 1},
	{File: "proc/sys/net/ipv4/conf/all/arp_announce", Value: 2},
}

// tune sets the sysctls. A failure is logged, and no reason not to serve: an
// administrator may have set them.
func tune(logger logr.Logger, strict bool) {
	settings := sysctls
	if strict {
		settings = append(settings[:len(settings):len(settings)], strictARP...)
	}
	for _, s := range settings {
		if err := sysctl.Set(sysctl.Options{Logger: logger}, s); err != nil {
			logger.Info("A setting of the kernel that this mode needs stays as it is", "reason", err.Error())
		}
	}
}
