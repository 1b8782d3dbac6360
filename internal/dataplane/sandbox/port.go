package sandbox

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/dataplane/relay"
	"sluice/internal/plan"
)

// port serves a node port. It has a relay at each address, and a pool for each route,
// which they share.
type port struct {
	dataplane      *Dataplane
	key            plan.Key
	frontend       *plan.Frontend
	route, outside *relay.Pool
	nobody         *relay.Pool                   // has no endpoints
	split          atomic.Bool                   // clients outside have a route of their own
	admission      atomic.Pointer[plan.Frontend] // says who may connect
	relays         map[netip.Addr]*relay.Relay
	tally          tally
}

// tally counts connections.
type tally struct{ accepted, refused atomic.Uint64 }

func (t *tally) read() count { return count{t.accepted.Load(), t.refused.Load()} }

// count is a tally at one moment.
type count struct{ accepted, refused uint64 }

func (c count) plus(o count) count { return count{c.accepted + o.accepted, c.refused + o.refused} }

func newPort(d *Dataplane, key plan.Key) *port {
	b := relay.NewBalancer(clock.RealClock{}, fmt.Sprintf("the Service with node port %d", key.Port))
	return &port{dataplane: d, key: key, route: b.NewPool(), outside: b.NewPool(), nobody: b.NewPool(), relays: map[netip.Addr]*relay.Relay{}}
}

func (p *port) pool(client netip.Addr) *relay.Pool {
	if f := p.admission.Load(); f != nil && !f.Admits(client) {
		return p.nobody
	}
	if p.split.Load() && p.dataplane.outside(client) {
		return p.outside
	}
	return p.route
}

// serve serves the frontend at these addresses. What is not listened on because of an
// error harms no other address.
func (p *port) serve(at []netip.Addr) error {
	f := p.frontend
	affinity := time.Duration(f.Affinity) * time.Second
	p.route.Set(f.Route, f.Serves, affinity)
	if f.Outside != nil {
		p.outside.Set(*f.Outside, f.Serves, affinity)
	} else {
		p.outside.Remove()
	}
	p.split.Store(f.Outside != nil)
	p.admission.Store(f)
	if !slices.ContainsFunc(f.Routes(), func(r *plan.Route) bool { return !r.Closed() }) {
		at = nil // a closed port refuses by itself
	}
	p.leave(at)
	var failed []error // of all addresses, mostly the same
	for _, ip := range at {
		r := p.relays[ip]
		if r == nil {
			r = p.newRelay(ip)
			p.relays[ip] = r
		}
		if err := r.Listen(f.HasEndpoints()); err != nil {
			failed = append(failed, err)
		}
	}
	return summary(failed)
}

// summary returns one error for those of several addresses, which mostly have the same
// cause.
func summary(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w (%s)", errs[0], relay.Remedy(errs[0]))
	}
	return fmt.Errorf("%w, and %d more of the node's addresses (%s)", errs[0], len(errs)-1, relay.Remedy(errs[0]))
}

func (p *port) newRelay(ip netip.Addr) *relay.Relay {
	d := p.dataplane
	return relay.New(d.lifetime, relay.Options{
		Choose: p.pool, Address: netip.AddrPortFrom(ip, p.key.Port), Protocol: p.key.Protocol, Budget: d.Budget,
		ResetRemoved: d.ResetRemoved, IdleTimeout: d.UDPTimeout, Logger: d.Logger,
		Tried:    d.Tried,
		Accepted: func() { p.tally.accepted.Add(1) },
		Refused:  func(relay.Refusal) { p.tally.refused.Add(1) },
	})
}

// leave releases all other addresses. Established TCP connections go on.
func (p *port) leave(except []netip.Addr) {
	for _, ip := range slices.Collect(maps.Keys(p.relays)) {
		if slices.Contains(except, ip) {
			continue
		}
		r := p.relays[ip]
		r.Close()
		p.dataplane.running.Go(r.Wait)
		delete(p.relays, ip)
	}
}
