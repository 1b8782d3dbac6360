//go:build linux

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/ipvs/leftover"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// commit is one Apply, Repair or Reconcile.
type commit struct {
	d *Dataplane
	// touched are the servers that may have to be changed, each once.
	touched []*server
	seen    map[*server]struct{}
	failed  map[plan.Key]error
	table   func() dataplane.Result
	result  dataplane.Result
	// allRoutes says that all routes are looked at, not only those of the touched.
	allRoutes bool
}

func (c *commit) touch(s *server) {
	if c.seen == nil {
		c.seen = map[*server]struct{}{}
	}
	if _, seen := c.seen[s]; !seen {
		c.seen[s] = struct{}{}
		c.touched = append(c.touched, s)
	}
}

// set replaces a frontend, adds it, or removes it if f is nil.
func (c *commit) set(k plan.Key, f *plan.Frontend) {
	old := c.d.frontends[k]
	if f != nil {
		c.d.frontends[k] = f
	} else {
		delete(c.d.frontends, k)
	}
	c.serve(k, f, addressesOf(k, &c.d.settings), old == nil || !old.HasEndpoints())
}

// serve has the servers at some addresses serve a frontend, or nothing if it is nil. Late says
// that packets do not reach it yet.
func (c *commit) serve(k plan.Key, f *plan.Frontend, at []netip.Addr, late bool) {
	for _, ip := range at {
		key := keyFor(k, ip)
		s := c.d.servers[key]
		if s == nil && (f == nil || !scheduled(f)) {
			continue
		}
		if s == nil {
			s = &server{Service: ipvs.Service{Key: key}}
			c.d.addServer(s)
		}
		s.frontend, s.late = f, late
		c.touch(s)
	}
}

// addressesOf returns the addresses that a frontend answers on.
func addressesOf(k plan.Key, s *plan.Settings) []netip.Addr {
	if !k.NodePort() {
		return []netip.Addr{k.Addr}
	}
	return s.NodePortAddrs(k.Family())
}

// configure takes over settings. Node ports have a server for each address.
func (c *commit) configure(s plan.Settings) {
	old := c.d.settings
	c.d.settings = s
	c.allRoutes = true
	if slices.Equal(old.NodePortIPs, s.NodePortIPs) {
		return
	}
	for k, f := range c.d.frontends {
		if k.NodePort() {
			c.serve(k, nil, addressesOf(k, &old), false)
			c.serve(k, f, addressesOf(k, &s), false)
		}
	}
}

// run writes the commit, with the table in between: see Dataplane.Apply.
func (c *commit) run(ctx context.Context, table func() dataplane.Result) dataplane.Result {
	c.table = table
	sent := c.d.writer.Commands()
	var err error
	for _, step := range []func(context.Context) error{
		c.writeServices, c.raise, c.addRoutes, c.writeTable, c.raise, c.lower, c.removeIdle,
	} {
		if err = step(ctx); err == nil && c.d.afterStep != nil {
			err = c.d.afterStep()
		}
		if err != nil {
			break
		}
	}
	c.result.Elements += int(c.d.writer.Commands() - sent)
	if err != nil {
		c.d.setServers(nil)
		c.result.Err = err
		return c.result
	}
	if len(c.failed) > 0 && c.result.Failed == nil {
		c.result.Failed = map[plan.Key]error{}
	}
	maps.Copy(c.result.Failed, c.failed)
	return c.result
}

// writeTable writes the table. Nothing waits for it any longer.
func (c *commit) writeTable(context.Context) error {
	c.result = c.table()
	for _, s := range c.touched {
		s.late = false
	}
	return c.result.Err
}

// raise adds the destinations that come, unless they wait for the table.
func (c *commit) raise(ctx context.Context) error {
	return c.write(ctx, func(s *server, b *ipvs.Batch) {
		if !s.late {
			s.raise(b)
		}
	})
}

// lower takes new connections from the destinations that go.
func (c *commit) lower(ctx context.Context) error {
	var draining []ipvs.Key
	err := c.write(ctx, func(s *server, b *ipvs.Batch) {
		if s.lower(b) {
			draining = append(draining, s.Key)
		}
	})
	if err != nil {
		return err
	}
	return c.d.drain(ctx, draining)
}

func (c *commit) removeIdle(ctx context.Context) error {
	return c.d.removeIdle(ctx, c.touched, c.allRoutes)
}

// writeServices adds the virtual services that are missing, and changes those that
// differ. Those of other programs stay as they are.
func (c *commit) writeServices(ctx context.Context) error {
	b := &ipvs.Batch{}
	before := map[ipvs.Key]ipvs.Service{}
	for _, s := range c.touched {
		if !s.serves() {
			continue
		}
		want := s.wanted()
		switch {
		case s.Scheduler == "":
			b.AddService(&want)
		case s.Service != want:
			b.SetService(&want)
		default:
			continue
		}
		before[s.Key], s.Service = s.Service, want
	}
	return c.send(ctx, b, func(s *server) { s.Service = before[s.Key] })
}

// write collects commands about the touched servers, and sends them.
func (c *commit) write(ctx context.Context, collect func(*server, *ipvs.Batch)) error {
	b := &ipvs.Batch{}
	for _, s := range c.touched {
		if s.Scheduler != "" {
			collect(s, b)
		}
	}
	return c.send(ctx, b, nil)
}

// send sends a batch. Frontends whose servers the kernel refuses to change have failed;
// what it holds of them is read again, or undone by undo.
func (c *commit) send(ctx context.Context, b *ipvs.Batch, undo func(*server)) error {
	err := c.d.writer.Commit(ctx, b)
	var refused ipvs.Refused
	if !errors.As(err, &refused) {
		return err
	}
	for _, r := range refused {
		s := c.d.servers[r.Key]
		if s.frontend != nil {
			c.failed[s.frontend.Key] = refusal(r)
		}
		if errors.Is(r.Err, unix.EEXIST) {
			c.d.adoptLater(ctx, r.Key)
		}
		if undo != nil {
			undo(s)
			continue
		}
		if s.destinations, err = c.d.readDestinations(ctx, r.Key); err != nil {
			return err
		}
	}
	return nil
}

// adoptLater has a virtual service that is in the way adopted if it is upstream's.
func (d *Dataplane) adoptLater(ctx context.Context, k ipvs.Key) {
	if upstream, err := leftover.FindUpstream(ctx, d.netns); err == nil && upstream.Owns(k) {
		d.suspicious()
	}
}

func refusal(r ipvs.Refusal) error {
	if errors.Is(r.Err, unix.EEXIST) {
		return foreign(r.Key)
	}
	return fmt.Errorf("the kernel refused the virtual service %s: %w", r.Key, r.Err)
}

func foreign(k ipvs.Key) error {
	return fmt.Errorf("another program has a virtual service of IPVS at %s (remove it there, or give the Service another address)", k)
}

func (d *Dataplane) readDestinations(ctx context.Context, k ipvs.Key) ([]ipvs.Destination, error) {
	list, err := d.writer.Destinations(ctx, k)
	slices.SortFunc(list, compareDestinations)
	return list, err
}

// adopt reads the virtual services, takes over those that are ours or upstream's, and
// touches all.
func (c *commit) adopt(ctx context.Context) error {
	list, err := c.d.writer.Services(ctx)
	if err != nil {
		return err
	}
	have := make(map[ipvs.Key]ipvs.Service, len(list))
	for _, s := range list {
		have[s.Key] = s
	}
	upstream, err := leftover.FindUpstream(ctx, c.d.netns)
	if err != nil {
		return err
	}
	known := c.d.servers
	c.d.setServers(make(map[ipvs.Key]*server, len(known)))
	c.d.draining, c.d.holders = map[ipvs.Key]struct{}{}, map[netip.Addr]int{}
	c.allRoutes = true
	for k, f := range c.d.frontends {
		if scheduled(f) && c.d.settings.Serves(k.Family()) {
			c.serve(k, f, addressesOf(k, &c.d.settings), false)
		}
	}
	for k, s := range c.d.servers {
		found, there := have[k]
		if !there {
			continue
		}
		// A service that another program changed was ours.
		if _, ours := known[k]; !ours && !leftover.Owned(found) && !upstream.Owns(k) {
			c.failed[s.frontend.Key] = foreign(k)
			c.d.deleteServer(s)
			continue
		}
		s.Service = found
	}
	c.touched = slices.DeleteFunc(c.touched, func(s *server) bool { return c.d.servers[s.Key] != s })
	unreachable := &ipvs.Batch{}
	for k, found := range have {
		if _, wanted := c.d.servers[k]; wanted || !leftover.Owned(found) {
			continue
		}
		// Where a family was switched off, its connections have ended.
		if !c.d.settings.Serves(model.FamilyOf(k.Addr)) {
			unreachable.DeleteService(k)
			continue
		}
		at := plan.Key{Addr: k.Addr, Port: k.Port, Protocol: model.Protocol(k.Protocol)}
		f, _ := plan.Lookup(c.d.frontends, nil, &c.d.settings, at, func(netip.Addr) bool { return false })
		s := &server{Service: found, frontend: f} // nil if it is gone
		c.d.addServer(s)
		c.touch(s)
	}
	if err := c.d.writer.Commit(ctx, unreachable); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	for _, s := range c.touched {
		if s.Scheduler == "" {
			continue
		}
		if s.destinations, err = c.d.readDestinations(ctx, s.Key); err != nil {
			return err
		}
	}
	return nil
}

// removeIdle deletes those of some servers that are for no frontend and have no
// destinations left, and the routes to them.
func (d *Dataplane) removeIdle(ctx context.Context, some []*server, allRoutes bool) error {
	b, gone := &ipvs.Batch{}, map[netip.Addr]struct{}{}
	for _, s := range some {
		// One that had drained already may be gone.
		if d.servers[s.Key] != s || s.serves() || len(s.destinations) > 0 {
			continue
		}
		if s.Scheduler != "" {
			b.DeleteService(s.Key)
		}
		gone[s.Addr] = struct{}{}
		d.deleteServer(s)
	}
	if err := d.writer.Commit(ctx, b); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return d.removeRoutes(allRoutes, gone)
}

// setServers replaces all servers; nil if they are unknown.
func (d *Dataplane) setServers(servers map[ipvs.Key]*server) {
	d.commits.Locked(func() { d.servers = servers })
}

// addServer adds a server, whose address is led to the node from the next commit on.
func (d *Dataplane) addServer(s *server) {
	d.commits.Lock()
	d.servers[s.Key] = s
	d.commits.Unlock()
	d.holders[s.Addr]++
}

func (d *Dataplane) deleteServer(s *server) {
	d.commits.Locked(func() { delete(d.servers, s.Key) })
	delete(d.draining, s.Key)
	if d.holders[s.Addr]--; d.holders[s.Addr] == 0 {
		delete(d.holders, s.Addr)
	}
}

// routeTo returns the route that leads an address of a server to the node: its own, or
// that of all ClusterIPs. There is none for addresses of node ports, which are the
// node's.
func (d *Dataplane) routeTo(ip netip.Addr) (p netip.Prefix, needed bool) {
	if _, local := slices.BinarySearchFunc(d.settings.NodePortIPs, ip, netip.Addr.Compare); local {
		return netip.Prefix{}, false
	}
	for _, p := range d.settings.ServiceCIDRs {
		if p.Contains(ip) {
			return p, true
		}
	}
	return netip.PrefixFrom(ip, ip.BitLen()), true
}

func (d *Dataplane) serverIn(p netip.Prefix) bool {
	if p.IsSingleIP() {
		return d.holders[p.Addr()] > 0
	}
	for ip := range d.holders {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// addRoutes adds the routes that the touched servers need, or all that any needs.
func (c *commit) addRoutes(context.Context) error {
	want := map[netip.Prefix]struct{}{}
	need := func(ip netip.Addr) {
		if p, needed := c.d.routeTo(ip); needed {
			want[p] = struct{}{}
		}
	}
	for _, s := range c.touched {
		need(s.Addr)
	}
	if c.allRoutes {
		for ip := range c.d.holders {
			need(ip)
		}
	}
	return c.d.routes.Add(want, c.d.families())
}

// removeRoutes removes the routes to addresses that no server has any more; if all is
// set, all routes that none needs.
func (d *Dataplane) removeRoutes(all bool, gone map[netip.Addr]struct{}) error {
	if !all {
		for ip := range gone {
			p, needed := d.routeTo(ip)
			if !needed || d.serverIn(p) {
				continue
			}
			if err := d.routes.Remove(p); err != nil {
				return err
			}
		}
		return nil
	}
	needed := map[netip.Prefix]struct{}{}
	for ip := range d.holders {
		if p, ok := d.routeTo(ip); ok {
			needed[p] = struct{}{}
		}
	}
	if err := d.routes.RemoveOthers(needed); err != nil {
		return err
	}
	for _, f := range model.Families {
		if d.routes.Ruled[f] && !d.settings.Serves(f) {
			if err := d.routes.RemoveRules(f); err != nil {
				return err
			}
		}
	}
	return nil
}
