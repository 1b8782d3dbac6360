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

// port serves a node port. It has a gate at each address, and a pool for each route,
// which the gates share.
type port struct {
	dataplane      *Dataplane
	key            plan.Key
	frontend       *plan.Frontend
	route, outside *relay.Pool
	split          atomic.Bool // clients outside have a route of their own
	gates          map[netip.Addr]*relay.Gate
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
	return &port{dataplane: d, key: key, route: b.NewPool(), outside: b.NewPool(), gates: map[netip.Addr]*relay.Gate{}}
}

// pool returns the pool that a client uses.
func (p *port) pool(client netip.Addr) *relay.Pool {
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
	if !slices.ContainsFunc(f.Routes(), func(r *plan.Route) bool { return r.Verdict() != plan.Reject }) {
		at = nil // a closed port refuses by itself
	}
	p.leave(at)
	var failed []error // of all addresses, mostly the same
	for _, ip := range at {
		gate := p.gates[ip]
		if gate == nil {
			gate = p.newGate(ip)
			p.gates[ip] = gate
		}
		if err := gate.Listen(f.HasEndpoints()); err != nil {
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

func (p *port) newGate(ip netip.Addr) *relay.Gate {
	d := p.dataplane
	return relay.NewGate(d.lifetime, relay.Options{
		Address: netip.AddrPortFrom(ip, p.key.Port), Protocol: p.key.Protocol, Budget: d.Budget,
		ResetRemoved: d.ResetRemoved, IdleTimeout: d.UDPTimeout, Logger: d.Logger,
		Accepted: func() { p.tally.accepted.Add(1) },
		Refused:  func(relay.Refusal) { p.tally.refused.Add(1) },
	}, p.pool)
}

// leave releases all other addresses. Established TCP connections go on.
func (p *port) leave(except []netip.Addr) {
	for _, ip := range slices.Collect(maps.Keys(p.gates)) {
		if slices.Contains(except, ip) {
			continue
		}
		gate := p.gates[ip]
		gate.Close()
		p.dataplane.running.Go(gate.Wait)
		delete(p.gates, ip)
	}
}
