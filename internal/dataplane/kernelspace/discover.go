package kernelspace

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/kernel/hns"
	"sluice/internal/plan"
)

// isRerouted reports whether other subnets of an overlay mean that a known address is on another node.
func (d *Dataplane) isRerouted(now []hns.RemoteSubnet) bool {
	for ip, e := range d.endpoints.at {
		if e.Remote() && nodeIn(now, ip) != nodeIn(d.subnets, ip) {
			return true
		}
	}
	return false
}

// discover finds endpoints, and subnets of an overlay, that came since, if frontends have addresses
// that are not known. It returns the other frontends that a new endpoint concerns.
func (w *writer) discover(set []*plan.Frontend) (more []*plan.Frontend, err error) {
	unknown, elsewhere := false, false
	for _, f := range set {
		for _, to := range f.Route.Endpoints {
			e := w.endpoints.at[to.Addr()]
			unknown = unknown || e == nil || to.Local && e.ID.IsOurs()
			elsewhere = elsewhere || e == nil && !to.Local && !w.nodeOf(to.Addr()).IsValid()
		}
	}
	if !unknown && !w.stale {
		return nil, nil
	}
	w.stale = false
	if elsewhere && w.network.IsOverlay() {
		network, err := w.client.NetworkNamed(w.Windows.Network)
		if err != nil {
			return nil, err
		}
		if network.ID != w.network.ID {
			return nil, fmt.Errorf("network %s was made anew: %w", w.Windows.Network, hns.NetworkNotFound)
		}
		w.rerouted = w.isRerouted(network.RemoteSubnets())
		w.Locked(func() { w.network, w.subnets = network, network.RemoteSubnets() })
	}
	ids, err := w.client.IDs(hns.Endpoints, nil)
	if err != nil {
		return nil, err
	}
	moved := map[netip.Addr]struct{}{}
	present := make(map[hns.GUID]struct{}, len(ids))
	for _, id := range ids {
		present[id] = struct{}{}
		if w.endpoints.byID[id] != nil {
			continue
		}
		e, err := w.endpointOf(w.ctx, id, w.network.ID)
		if err != nil {
			return nil, err
		}
		if e == nil {
			continue
		}
		w.Locked(func() {
			for _, ip := range w.endpoints.add(e) {
				moved[ip] = struct{}{}
			}
		})
	}
	w.Locked(func() {
		for _, id := range slices.Collect(maps.Keys(w.endpoints.byID)) {
			if _, still := present[id]; !still {
				w.endpoints.remove(id)
			}
		}
	})
	if len(moved) == 0 {
		return nil, nil
	}
	for _, f := range w.frontends {
		if slices.ContainsFunc(f.Route.Endpoints, func(to plan.Endpoint) bool { _, found := moved[to.Addr()]; return found }) {
			more = append(more, f)
		}
	}
	return more, nil
}
