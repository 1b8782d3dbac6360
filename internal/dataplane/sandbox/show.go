package sandbox

import (
	"context"
	"net/netip"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

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
	out.Route, out.RouteSize = endpoints(&f.Route)
	if f.Outside != nil {
		out.Outside, out.OutsideSize = endpoints(f.Outside)
	}
	return out, nil
}

func endpoints(r *plan.Route) (some []netip.AddrPort, all int) {
	for _, e := range r.Endpoints[:min(len(r.Endpoints), dataplane.MaxDescribed)] {
		some = append(some, e.AddrPort)
	}
	return some, len(r.Endpoints)
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
