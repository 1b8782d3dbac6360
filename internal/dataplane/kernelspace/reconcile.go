package kernelspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/hns"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// reconcile reads all that HNS holds, deletes what is ours and not wanted, and makes the rest so.
func (d *Dataplane) reconcile(ctx context.Context) (dataplane.Result, error) {
	now, err := d.read(ctx, false)
	if errors.Is(err, os.ErrNotExist) {
		return dataplane.Result{}, fmt.Errorf("HNS has no network %q (the CNI plugin creates it; see Get-HnsNetwork for those that there are)", d.Windows.Network)
	}
	if err != nil {
		return dataplane.Result{}, err
	}
	d.Locked(func() { d.take(now) })
	w := d.writer(ctx)
	if err := w.replaceMoved(); err != nil {
		return w.Result, err
	}
	if err := w.sourceEndpoint(); err != nil {
		return w.Result, err
	}
	keep := map[hns.GUID]struct{}{}
	for _, f := range d.frontends {
		for _, b := range d.wantedOf(f) {
			keep[b.id] = struct{}{}
		}
	}
	for _, id := range slices.Collect(maps.Keys(d.balancers)) {
		if _, wanted := keep[id]; wanted {
			continue
		}
		if err := w.removeStale(id); err != nil {
			return w.Result, err
		}
	}
	return d.write(w, slices.SortedFunc(maps.Values(d.frontends), func(a, b *plan.Frontend) int { return a.Key.Compare(b.Key) }))
}

// take remembers what HNS holds.
func (d *Dataplane) take(now *listing) {
	if d.version != now.version {
		d.notice(now.version)
	}
	d.version, d.network, d.subnets, d.endpoints = now.version, now.network, now.network.RemoteSubnets(), newEndpoints(now.endpoints)
	d.stale = false
	d.balancers, d.strangers = map[hns.GUID]*hns.LoadBalancer{}, map[plan.Key]*hns.LoadBalancer{}
	d.wanted, d.wants, d.pins = map[plan.Key][]balancer{}, map[hns.GUID]int{}, map[plan.Key]hns.GUID{}
	d.kept = map[plan.Key]refusal{}
	for id, b := range now.balancers {
		if id.IsOurs() {
			d.balancers[id] = b
			d.endpoints.use(b.HostComputeEndpoints...)
			continue
		}
		for _, k := range keysOf(b) {
			d.strangers[k] = b
		}
	}
}

// notice logs what a release of Windows lacks.
func (d *Dataplane) notice(v hns.Version) {
	d.Logger.Info("The Host Networking Service is there", "version", v.String())
	if d.DSR && !v.DSR() {
		d.Logger.Error(nil, "Warning: --enable-dsr has no effect: this release of Windows has no DSR")
	}
	if !v.Affinity() {
		d.Logger.Error(nil, "Warning: Services have no session affinity: this release of Windows has none")
	}
}

// keysOf returns what a load balancer answers on.
func keysOf(b *hns.LoadBalancer) (all []plan.Key) {
	vips := addressesIn(b)
	if len(vips) == 0 {
		vips = []netip.Addr{netip.IPv4Unspecified()}
		if b.Flags&hns.IPv6 != 0 {
			vips[0] = netip.IPv6Unspecified()
		}
	}
	for _, m := range b.PortMappings {
		p, ok := map[uint32]model.Protocol{protocolTCP: model.TCP, protocolUDP: model.UDP}[m.Protocol]
		for _, ip := range vips {
			if ok {
				all = append(all, plan.Key{Addr: ip, Port: m.ExternalPort, Protocol: p})
			}
		}
	}
	return all
}

// apply writes a change.
func (d *Dataplane) apply(ctx context.Context, removed []plan.Key, set []*plan.Frontend) (dataplane.Result, error) {
	w := d.writer(ctx)
	for _, k := range removed {
		if err := w.removeFrontend(k); err != nil {
			return w.Result, err
		}
	}
	more, err := w.discover(set)
	if err != nil {
		return w.Result, err
	}
	if w.rerouted { // endpoints and source addresses follow from that
		all, err := d.reconcile(ctx)
		all.Transactions += w.Result.Transactions
		all.Elements += w.Result.Elements
		return all, err
	}
	return d.write(w, slices.Concat(d.giveWay(removed, set), set, more))
}

// giveWay returns the frontends whose health checks are at an address and port that a Service takes or
// leaves: these give way before.
func (d *Dataplane) giveWay(removed []plan.Key, set []*plan.Frontend) (concerned []*plan.Frontend) {
	if !d.ForwardHealthChecks {
		return nil
	}
	changed := map[plan.Key]struct{}{}
	for _, k := range removed {
		changed[k] = struct{}{}
	}
	for _, f := range set {
		changed[f.Key] = struct{}{}
	}
	for _, f := range d.frontends {
		if _, found := changed[healthKey(f)]; found && f.HealthPort != 0 {
			concerned = append(concerned, f)
		}
	}
	return concerned
}

// write writes frontends, and deletes endpoints that are not used any more.
func (d *Dataplane) write(w *writer, frontends []*plan.Frontend) (dataplane.Result, error) {
	for _, f := range frontends {
		if err := w.setFrontend(f); err != nil {
			return w.Result, err
		}
	}
	err := w.deleteIdle()
	return w.Result, err
}
