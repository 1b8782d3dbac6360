package iptables

import (
	"context"
	"net/netip"
	"slices"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/netns"
	"sluice/internal/plan"
)

// Describe follows the paths of packets to a frontend, and reads the chains on them.
func (d *Dataplane) Describe(ctx context.Context, at dataplane.Destination, client netip.Addr) (dataplane.Description, error) {
	var drv driver
	var states []*familyState
	d.locked(func() { drv, states = d.driver, d.states })
	if states == nil {
		return dataplane.Description{}, dataplane.ErrReconciling
	}
	i := slices.IndexFunc(states, func(s *familyState) bool { return s.family == at.Family() })
	if i < 0 {
		return dataplane.Description{}, nil // no rules of the family
	}
	e := explorer{ctx: ctx, driver: drv, at: at, visited: map[visit]bool{}}
	e.explore(iptables.Table{Family: at.Family(), Name: nat}, servicesChain)
	e.explore(iptables.Table{Family: at.Family(), Name: filter}, servicesChain, externalServicesChain, firewallChain)
	if e.err != nil {
		return dataplane.Description{}, e.err
	}
	f := states[i].frontend(at.Key)
	out := e.description(f)
	if f == nil || f.Affinity == 0 || !client.IsValid() {
		return out, nil
	}
	err := netns.Do(d.netns, func() error { return recallClient(ctx, &out, f, client) })
	return out, err
}

// recallClient finds the endpoints that the kernel remembers for a client, in the order
// of the rules that recall them.
func recallClient(ctx context.Context, out *dataplane.Description, f *plan.Frontend, client netip.Addr) error {
	pool := f.Route.Endpoints
	if f.Outside != nil {
		pool = slices.Concat(pool, f.Outside.Endpoints)
	}
	for _, e := range pool {
		if err := ctx.Err(); err != nil {
			return err
		}
		list := idOf(f).clients(e.AddrPort)
		line, left, err := remembered(list, client, f.Affinity)
		if err != nil {
			return err
		}
		if left > 0 {
			out.Remembered = append(out.Remembered, dataplane.Remembered{Endpoint: e.AddrPort, Expires: left})
			out.Objects = append(out.Objects, dataplane.Object{Where: "recent " + list, What: line})
		}
	}
	return nil
}
