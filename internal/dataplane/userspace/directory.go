//go:build linux

package userspace

import (
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/dataplane/relay"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// directory knows the pools of all frontends. One goroutine changes it, and many look
// things up.
type directory struct {
	clock clock.Clock

	mu        sync.RWMutex
	frontends map[plan.Key]*frontend
	balancers map[servicePort]*balancer
	settings  plan.Settings
}

type frontend struct {
	*plan.Frontend
	balancer *balancer
	route    *relay.Pool
	outside  *relay.Pool // nil if all clients have the same
}

// servicePort is what has round robin and affinity in common.
type servicePort struct {
	service  model.Name
	port     string
	protocol model.Protocol
	family   model.Family
}

// balancer is one of a service port, and how many frontends use it.
type balancer struct {
	*relay.Balancer
	frontends int
}

func newDirectory(c clock.Clock) *directory {
	return &directory{clock: c, frontends: map[plan.Key]*frontend{}, balancers: map[servicePort]*balancer{}}
}

func portOf(f *plan.Frontend) servicePort {
	return servicePort{f.Service, f.Port, f.Protocol, f.Family()}
}

// set adds a frontend or replaces one. A frontend that changes hands is another one:
// connections to the previous owner's endpoints go on as they are.
func (d *directory) set(f *plan.Frontend) {
	if !f.ProxyConnects {
		d.remove(f.Key)
		return
	}
	d.mu.RLock()
	known := d.frontends[f.Key]
	d.mu.RUnlock()
	if known != nil && portOf(known.Frontend) != portOf(f) {
		d.remove(f.Key)
		known = nil
	}
	if known == nil {
		known = d.add(f)
	}
	affinity := time.Duration(f.Affinity) * time.Second
	known.route.Set(f.Route, f.Serves, affinity)
	outside := known.outside
	switch {
	case f.Outside == nil && outside != nil:
		outside.Remove()
		outside = nil
	case f.Outside != nil && outside == nil:
		outside = known.balancer.NewPool()
	}
	if outside != nil {
		outside.Set(*f.Outside, f.Serves, affinity)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known.Frontend, known.outside = f, outside
}

// add adds a frontend with empty pools.
func (d *directory) add(f *plan.Frontend) *frontend {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := portOf(f)
	b := d.balancers[at]
	if b == nil {
		b = &balancer{Balancer: relay.NewBalancer(d.clock, "Service "+f.Service.String())}
		d.balancers[at] = b
	}
	b.frontends++
	added := &frontend{Frontend: f, balancer: b, route: b.NewPool()}
	d.frontends[f.Key] = added
	return added
}

// remove removes a frontend, if it is there.
func (d *directory) remove(k plan.Key) {
	d.mu.Lock()
	f := d.frontends[k]
	if f == nil {
		d.mu.Unlock()
		return
	}
	delete(d.frontends, k)
	if f.balancer.frontends--; f.balancer.frontends == 0 {
		delete(d.balancers, portOf(f.Frontend))
	}
	d.mu.Unlock()
	f.route.Remove()
	if f.outside != nil {
		f.outside.Remove()
	}
}

// keep removes all frontends that are not among these.
func (d *directory) keep(wanted map[plan.Key]*plan.Frontend) {
	var gone []plan.Key
	d.mu.RLock()
	for k := range d.frontends {
		if wanted[k] == nil {
			gone = append(gone, k)
		}
	}
	d.mu.RUnlock()
	for _, k := range gone {
		d.remove(k)
	}
}

func (d *directory) configure(s *plan.Settings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settings = *s
}

// find returns the pool of an address, or of the node port there.
func (d *directory) find(to netip.AddrPort, protocol model.Protocol, outside bool) *relay.Pool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	f := d.at(to, protocol)
	switch {
	case f == nil:
		return nil
	case outside && f.outside != nil:
		return f.outside
	}
	return f.route
}

// at returns the frontend that packets to an address meet, nil for none. The address is local
// where it matters: the table has asked the routing table.
func (d *directory) at(to netip.AddrPort, protocol model.Protocol) *frontend {
	k := plan.Key{Addr: to.Addr(), Port: to.Port(), Protocol: protocol}
	f, _ := plan.Lookup(d.frontends, nil, &d.settings, k, func(netip.Addr) bool { return true })
	return f
}

// connection is one that is to be opened to an endpoint.
type connection struct {
	client     netip.Addr
	endpoint   plan.Endpoint
	protocol   model.Protocol
	masquerade bool // the frontend asks for it
}

// source returns the address that an endpoint gets to see: the client's, or own, the
// node's. It is invalid if the kernel may choose which of the node's.
func (d *directory) source(c connection, own netip.Addr) netip.Addr {
	d.mu.RLock()
	defer d.mu.RUnlock()
	masquerade, _ := d.settings.ProxyMasquerades(c.client, c.endpoint, c.masquerade, 0)
	switch {
	case !masquerade:
		return c.client
	case d.at(c.endpoint.AddrPort, c.protocol) != nil:
		// The table would lead the connection back here, as a client's.
		return own
	}
	return netip.Addr{}
}

// copyOf returns a copy of a frontend, nil if it is not there.
func (d *directory) copyOf(k plan.Key) *frontend {
	d.mu.RLock()
	defer d.mu.RUnlock()
	f := d.frontends[k]
	if f == nil {
		return nil
	}
	now := *f
	return &now
}

// connections returns how many connections the endpoints of a frontend have now.
func (f *frontend) connections() map[netip.AddrPort]int {
	count := f.route.Connections()
	if f.outside != nil {
		for endpoint, n := range f.outside.Connections() {
			count[endpoint] += n
		}
	}
	return count
}
