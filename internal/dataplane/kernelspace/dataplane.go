package kernelspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/hns"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Options configures a Dataplane.
type Options struct {
	Logger logr.Logger
	dataplane.Windows
	// Service is HNS.
	Service hns.ABI
	// InterfaceOf returns the hardware address of the interface of the node that has an address.
	InterfaceOf func(netip.Addr) (string, error)
}

// Dataplane programs HNS. It implements dataplane.Dataplane.
type Dataplane struct {
	Options
	client   *hns.Client
	failures failures

	// Commits guards what follows against Verify.
	dataplane.Commits
	known     bool // a Reconcile succeeded, and nothing failed since
	settings  plan.Settings
	frontends map[plan.Key]*plan.Frontend
	version   hns.Version
	network   *hns.Network
	subnets   []hns.RemoteSubnet // of the network
	endpoints endpoints
	stale     bool // an endpoint went that was thought to be there
	// balancers are ours, in HNS, and of those that are wanted of each frontend, their IDs.
	balancers map[hns.GUID]*hns.LoadBalancer
	wanted    map[plan.Key][]balancer
	wants     map[hns.GUID]int // how many frontends want a load balancer
	// kept are load balancers of ours that HNS refused to delete, by what they answer on: in the way of others.
	kept map[plan.Key]refusal
	// strangers are load balancers of other programs when all were read last, by what they answer on.
	strangers map[plan.Key]*hns.LoadBalancer
	// pins are endpoints that a frontend needs besides those of its load balancers.
	pins map[plan.Key]hns.GUID
}

// refusal is an error about a load balancer.
type refusal struct {
	id  hns.GUID
	err error
}

// New returns a Dataplane that has asked HNS nothing yet.
func New(o Options) *Dataplane {
	return &Dataplane{Options: o, client: hns.NewClient(o.Service)}
}

var (
	_ dataplane.Dataplane     = (*Dataplane)(nil)
	_ dataplane.Counter       = (*Dataplane)(nil)
	_ dataplane.Describer     = (*Dataplane)(nil)
	_ dataplane.FamilyChecker = (*Dataplane)(nil)
)

// Reconcile implements dataplane.Dataplane.
func (d *Dataplane) Reconcile(ctx context.Context, desired *plan.Desired) dataplane.Result {
	return d.commit(func() (dataplane.Result, error) {
		d.settings, d.frontends = desired.Settings, maps.Clone(desired.Frontends)
		return d.reconcile(ctx)
	})
}

// Apply implements dataplane.Dataplane.
func (d *Dataplane) Apply(ctx context.Context, change *plan.Change) dataplane.Result {
	if !d.known {
		return dataplane.Result{Err: dataplane.ErrUnknown}
	}
	return d.commit(func() (dataplane.Result, error) {
		for _, k := range change.Removed {
			delete(d.frontends, k)
		}
		for _, f := range change.Set {
			d.frontends[f.Key] = f
		}
		if change.Settings != nil {
			moved := d.network.IsOverlay() && d.settings.PrimaryIP(model.IPv4) != change.Settings.PrimaryIP(model.IPv4)
			d.settings = *change.Settings
			if moved { // the endpoints of an overlay have the address of the node in them
				return d.reconcile(ctx)
			}
		}
		return d.apply(ctx, change.Removed, change.Set)
	})
}

// Repair implements dataplane.Dataplane.
func (d *Dataplane) Repair(ctx context.Context) dataplane.Result {
	if !d.known {
		return dataplane.Result{Err: dataplane.ErrUnknown}
	}
	return d.commit(func() (dataplane.Result, error) { return d.reconcile(ctx) })
}

// commit runs f alone. After an error nothing is known.
func (d *Dataplane) commit(f func() (dataplane.Result, error)) dataplane.Result {
	d.Begin()
	defer d.End()
	r, err := f()
	d.known = err == nil
	r.Err = err
	return r
}

// Verify implements dataplane.Dataplane.
func (d *Dataplane) Verify(ctx context.Context) (ok bool, err error) {
	var before uint64
	var network hns.GUID
	var subnets []hns.RemoteSubnet
	var balancers map[hns.GUID]*hns.LoadBalancer
	var endpoints map[hns.GUID]struct{}
	known := false
	err = d.WhenIdle(ctx, func(n uint64) {
		if before, known = n, d.known; known {
			network, subnets, balancers, endpoints = d.network.ID, d.subnets, maps.Clone(d.balancers), d.endpoints.needed()
		}
	})
	if err != nil || !known {
		return false, errors.Join(err, dataplane.ErrUnknown)
	}
	now, err := d.read(ctx, true)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // the network is gone
	}
	if err != nil {
		return false, err
	}
	ok = now.network.ID == network && sameSubnets(now.network.RemoteSubnets(), subnets) && len(now.balancers) == len(balancers)
	for id, b := range balancers {
		ok = ok && now.balancers[id] != nil && sameBalancer(now.balancers[id], b)
	}
	remote := map[netip.Addr]bool{}
	for id := range endpoints {
		e := now.endpoints[id]
		if ok = ok && e != nil; ok && id.IsOurs() && e.Remote() {
			remote[e.IPConfigurations[0].IPAddress] = true
		}
	}
	for id, e := range now.endpoints {
		_, needed := endpoints[id]
		ok = ok && (needed || !id.IsOurs())
		for _, ip := range addressesOf(e) { // a pod of this node has an address that was elsewhere
			ok = ok && (e.Remote() || !remote[ip])
		}
	}
	d.Locked(func() { ok = ok || d.Since(before) }) // what was read is of no use then
	return ok, nil
}

// Disturbed implements dataplane.Dataplane: HNS does not tell who changes what.
func (d *Dataplane) Disturbed() <-chan struct{} { return nil }

// Close implements dataplane.Dataplane. No handle is open.
func (d *Dataplane) Close() error { return nil }

// CheckFamily implements dataplane.FamilyChecker. A HNS that does not answer yet is given the benefit
// of the doubt.
func (d *Dataplane) CheckFamily(_ context.Context, f model.Family) error {
	if f == model.IPv4 {
		return nil
	}
	version, err := d.client.Version()
	if err != nil {
		return nil
	}
	network, err := d.client.NetworkNamed(d.Windows.Network)
	if err != nil {
		return nil
	}
	return lacksIPv6(version, network)
}

func lacksIPv6(v hns.Version, n *hns.Network) error {
	switch {
	case !v.DualStack():
		return fmt.Errorf("HNS %v has no IPv6 (use a later release of Windows)", v)
	case n.IsOverlay():
		return errors.New("overlay networks of HNS have no IPv6 (use a network of type L2Bridge)")
	}
	return nil
}
