//go:build linux

package leftover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/base/inet"
	"sluice/internal/dataplane"
	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/kernel/localroute"
)

const (
	// drainPeriod is how often connections are counted.
	drainPeriod = 5 * time.Second
	// drainLogPeriod is how often their number is logged.
	drainLogPeriod = time.Minute

	// drainTable has the routes to upstream's addresses, with rules after those of
	// ownTable, which the Dataplane of this mode may be using.
	drainTable = ownTable + 1
)

// ipvsFile exists if IPVS is loaded. A netlink request could load it.
const ipvsFile = "/proc/thread-self/net/ip_vs"

// Drain ends what upstream's ipvs mode left behind, and what this mode did unless it is
// running.
//
// Virtual services get no new connections: the rules of the running Dataplane translate
// those before IPVS sees them, and as a precaution all weights are 0. A virtual service
// is deleted when its connections have ended, and an address of upstream's link is
// removed when no connection needs it.
func Drain(ctx context.Context, o dataplane.DrainOptions) (err error) {
	d, err := newDrainer(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return d.run(ctx)
}

// Remove removes what ipvs mode left at once. With ownOnly, upstream's stays.
func Remove(ctx context.Context, logger logr.Logger, ownOnly bool) (err error) {
	d, err := newDrainer(dataplane.DrainOptions{Logger: logger})
	if err != nil {
		return err
	}
	d.ownOnly = ownOnly
	defer func() { err = errors.Join(err, d.close()) }()
	if _, err := d.pass(ctx, true); err != nil {
		return err
	}
	return d.finish(ctx)
}

// holder is the Dataplane of this mode. It adopts the virtual services that it needs.
type holder interface {
	// Holds reports whether a virtual service is one of its own.
	Holds(ipvs.Key) bool
}

type drainer struct {
	dataplane.DrainOptions
	running holder            // nil if another mode is running, or none
	conn    *ipvs.Conn        // nil without IPVS
	own     *localroute.Table // of our virtual services
	kept    *localroute.Table // of upstream's addresses, as long as they are needed
	stopped map[ipvs.Key]bool
	ownOnly bool // leave upstream's alone
}

func newDrainer(o dataplane.DrainOptions) (_ *drainer, err error) {
	d := &drainer{DrainOptions: o, stopped: map[ipvs.Key]bool{}}
	d.running, _ = o.Running.(holder)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if _, err := os.Stat(ipvsFile); err == nil {
		if d.conn, err = ipvs.Dial(0); err != nil {
			return nil, err
		}
	}
	if d.own, err = OpenRoutes(0); err != nil {
		return nil, err
	}
	if d.kept, err = localroute.Open(0, drainTable, localroute.Priorities); err != nil {
		return nil, err
	}
	d.kept.Sources = map[inet.Family]netip.Addr{} // they are found when they are needed
	return d, d.kept.Read(inet.Families[:])
}

func (d *drainer) close() (err error) {
	if d.conn != nil {
		err = d.conn.Close()
	}
	for _, r := range []*localroute.Table{d.own, d.kept} {
		if r != nil {
			r.Close()
		}
	}
	return err
}

// run drains until nothing is left, or the timeout.
func (d *drainer) run(ctx context.Context) error {
	until := time.Now().Add(d.Timeout)
	var last dataplane.Draining
	var logged time.Time
	var failed string
	for {
		cut := !time.Now().Before(until)
		left, err := d.pass(ctx, cut)
		if ctx.Err() != nil {
			return nil // the next proxy drains what is left
		}
		if cut || err == nil && left == (dataplane.Draining{}) {
			if err == nil {
				err = d.finish(ctx)
			}
			if last != (dataplane.Draining{}) {
				d.Report(dataplane.Draining{})
				d.Logger.Info("Drained the virtual services of an earlier kube-proxy", "cut", left.Connections)
			}
			return err
		}
		if err != nil {
			if err.Error() != failed {
				d.Logger.Error(err, "Cannot drain the virtual services of an earlier kube-proxy yet")
			}
			failed = err.Error()
		} else {
			if left.Until = until; left != last {
				d.Report(left)
			}
			if last = left; time.Since(logged) >= drainLogPeriod {
				d.Logger.Info("Draining the virtual services of an earlier kube-proxy",
					"services", left.Services, "connections", left.Connections, "until", until.Format(time.TimeOnly))
				logged = time.Now()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(drainPeriod, time.Until(until))):
		}
	}
}

// pass looks once at what is there, removes what no connection needs, or all if they
// are to be cut, and returns what connections needed before.
func (d *drainer) pass(ctx context.Context, cut bool) (dataplane.Draining, error) {
	found, err := d.findUpstream(ctx)
	if err != nil {
		return dataplane.Draining{}, err
	}
	services, err := d.passServices(ctx, found, cut)
	left := dataplane.Draining{Services: len(services)}
	for _, connections := range services {
		left.Connections += connections
	}
	if err != nil {
		return left, err
	}
	bound, err := d.passAddresses(found, services, cut)
	others := map[ipvs.Key]bool{}
	for _, c := range bound {
		if services[c.service] == 0 { // otherwise it is counted already
			others[c.service] = true
			left.Connections++
		}
	}
	left.Services += len(others)
	return left, err
}

// findUpstream returns nothing if upstream's is to be left alone.
func (d *drainer) findUpstream(ctx context.Context) (*Upstream, error) {
	if d.ownOnly {
		return &Upstream{}, nil
	}
	return FindUpstream(ctx, 0)
}

// passServices returns the virtual services that have connections, with the number of
// these.
func (d *drainer) passServices(ctx context.Context, found *Upstream, cut bool) (map[ipvs.Key]int, error) {
	if d.conn == nil {
		return nil, nil
	}
	list, err := d.conn.Services(ctx)
	if err != nil {
		return nil, err
	}
	var keys []ipvs.Key
	for _, s := range list {
		if d.drains(s, found) {
			keys = append(keys, s.Key)
		}
	}
	if keys == nil {
		return nil, nil
	}
	// The weights come first: then no connection is missed when they are counted.
	if err := d.stop(ctx, keys); err != nil {
		return nil, err
	}
	services := map[ipvs.Key]int{}
	var ended ipvs.Batch
	for _, k := range keys {
		destinations, err := d.conn.Destinations(ctx, k)
		if err != nil {
			return nil, err
		}
		for _, to := range destinations {
			services[k] += to.Connections()
		}
		if services[k] == 0 {
			delete(services, k)
		}
		if services[k] == 0 || cut {
			ended.DeleteService(k)
		}
	}
	if ended.Len() == 0 {
		return services, nil
	}
	d.Logger.Info("Removing virtual services of an earlier kube-proxy", "services", ended.Len())
	if cut && len(services) > 0 {
		return services, d.cut(ctx, services, &ended)
	}
	return services, d.commit(ctx, &ended)
}

func (d *drainer) drains(s ipvs.Service, found *Upstream) bool {
	if Owned(s) {
		return d.running == nil
	}
	return found.Owns(s.Key) && !d.excluded(s.Addr) && (d.running == nil || !d.running.Holds(s.Key))
}

// stop sets all weights to 0, once.
func (d *drainer) stop(ctx context.Context, keys []ipvs.Key) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k ipvs.Key) bool { return d.stopped[k] })
	var b ipvs.Batch
	for _, k := range keys {
		destinations, err := d.conn.Destinations(ctx, k)
		if err != nil {
			return err
		}
		for _, to := range destinations {
			if to.Weight != 0 {
				to.Weight = 0
				b.SetDestination(k, to)
			}
		}
	}
	if err := d.commit(ctx, &b); err != nil {
		return err
	}
	for _, k := range keys {
		d.stopped[k] = true
	}
	return nil
}

// cut deletes virtual services, and the connection tracking entries of their connections. IPVS
// would do so itself, but not before the connections time out.
func (d *drainer) cut(ctx context.Context, services map[ipvs.Key]int, deletions *ipvs.Batch) error {
	connections, err := ipvs.Connections()
	err = errors.Join(err, d.commit(ctx, deletions))
	tracking, derr := ctnetlink.Dial(0)
	if derr != nil {
		return errors.Join(err, derr)
	}
	for _, c := range connections {
		if services[c.Service] > 0 {
			err = errors.Join(err, tracking.Forget(ctnetlink.Flow{
				Protocol: inet.Protocol(c.Service.Protocol), From: c.Client,
				To: netip.AddrPortFrom(c.Service.Addr, c.Service.Port),
			}))
		}
	}
	return errors.Join(err, tracking.Close())
}

// commit sends commands. It is no error if what they are about is gone.
func (d *drainer) commit(ctx context.Context, b *ipvs.Batch) error {
	err := d.conn.Commit(ctx, b)
	var refused ipvs.Refused
	if !errors.As(err, &refused) {
		return err
	}
	for _, r := range refused {
		if !errors.Is(r.Err, unix.ESRCH) && !errors.Is(r.Err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// passAddresses removes the addresses of the link that no connection needs. An address
// is needed by a virtual service that drains, and by sockets of the node that are bound
// to it: upstream has the node connect to a Service from the address of that Service.
// It returns the connections of such sockets where no virtual service drains.
//
// A needed address stays on the link, since the kernel checks what a socket is bound to.
// But packets reach it by a route of ours: new connections of the node come from the
// node's own address, and ARP is not answered.
func (d *drainer) passAddresses(found *Upstream, services map[ipvs.Key]int, cut bool) (bound []connection, err error) {
	draining := map[netip.Addr]bool{}
	for k := range services {
		draining[k.Addr] = true
	}
	bound, err = d.boundSockets(found, draining)
	if err != nil {
		return nil, err
	}
	needed := maps.Clone(draining)
	for _, c := range bound {
		needed[c.client.Addr()] = true
	}
	if cut {
		clear(needed)
	}
	return bound, d.keepAddresses(found, needed)
}

// boundSockets returns the connections whose client is an address of the link, other than
// those at which virtual services drain. IPVS does not know all of them: between the first
// rules of ours and the first pass, the node connected from such addresses past IPVS.
func (d *drainer) boundSockets(found *Upstream, draining map[netip.Addr]bool) ([]connection, error) {
	others := maps.Clone(found.on)
	maps.DeleteFunc(others, func(ip netip.Addr, _ bool) bool { return draining[ip] || d.excluded(ip) })
	if len(others) == 0 {
		return nil, nil
	}
	bound, err := readSockets(others)
	if err != nil || d.conn == nil {
		return bound, err
	}
	connections, err := ipvs.Connections()
	for _, c := range connections {
		known := connection{c.Client, c.Service}
		if others[c.Client.Addr()] && !slices.Contains(bound, known) {
			bound = append(bound, known)
		}
	}
	return bound, err
}

// keepAddresses removes all addresses but the needed ones, to which it makes a route.
func (d *drainer) keepAddresses(found *Upstream, needed map[netip.Addr]bool) error {
	kept, families := map[netip.Prefix]struct{}{}, map[inet.Family]bool{}
	for ip := range needed {
		if found.on[ip] && !d.excluded(ip) {
			kept[netip.PrefixFrom(ip, ip.BitLen())] = struct{}{}
			families[inet.FamilyOf(ip)] = true
		}
	}
	if len(kept) > 0 {
		// The node would connect to an address that is on a link from that address.
		d.kept.Sources = found.sourceIPs()
	}
	if err := d.kept.Add(kept, slices.Collect(maps.Keys(families))); err != nil {
		return err
	}
	var errs []error
	for _, a := range found.addresses {
		switch ip := addrOf(a.IP); {
		case d.excluded(ip):
		case needed[ip]:
			errs = append(errs, found.unroute(a))
		default:
			errs = append(errs, found.removeAddress(a))
		}
	}
	return errors.Join(append(errs, d.kept.RemoveOthers(kept))...)
}

func (d *drainer) excluded(ip netip.Addr) bool {
	return slices.ContainsFunc(d.IPVS.ExcludeCIDRs, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// finish removes what belongs to no single connection.
func (d *drainer) finish(ctx context.Context) error {
	found, err := d.findUpstream(ctx)
	if err != nil {
		return err
	}
	errs := []error{d.kept.RemoveAll(inet.Families[:])}
	if !d.ownOnly {
		errs = append(errs, destroySets(ctx, d.Logger))
	}
	if d.running == nil {
		errs = append(errs, d.own.RemoveAll(inet.Families[:]))
		if found.link != nil && len(found.addresses) == 0 {
			d.Logger.Info("Removing the link of an earlier kube-proxy", "link", Link)
			errs = append(errs, found.removeLink())
		}
	}
	return errors.Join(errs...)
}

type connection struct {
	client  netip.AddrPort
	service ipvs.Key
}

// readSockets returns the TCP connections of sockets of the node that are bound to some
// addresses, whether IPVS knows them or not.
func readSockets(at map[netip.Addr]bool) (list []connection, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := netlink.SocketDiagTCP(family)
		if errors.Is(err, unix.ENOENT) {
			continue // the kernel does not list sockets, or has no IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("listing the sockets of the node: %w", err)
		}
		for _, s := range sockets {
			source := addrOf(s.ID.Source)
			if !at[source] || s.State == netlink.TCP_LISTEN || s.State == netlink.TCP_TIME_WAIT || s.State == netlink.TCP_CLOSE {
				continue
			}
			list = append(list, connection{
				client:  netip.AddrPortFrom(source, s.ID.SourcePort),
				service: ipvs.Key{Addr: addrOf(s.ID.Destination), Port: s.ID.DestinationPort, Protocol: unix.IPPROTO_TCP},
			})
		}
	}
	return list, nil
}
