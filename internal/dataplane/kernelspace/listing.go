package kernelspace

import (
	"context"
	"errors"
	"net/netip"

	"sluice/internal/kernel/hns"
)

// listing is what HNS holds.
type listing struct {
	version   hns.Version
	network   *hns.Network
	endpoints map[hns.GUID]*hns.Endpoint // of the network
	balancers map[hns.GUID]*hns.LoadBalancer
}

// read reads what HNS holds: of load balancers all, or only ours.
func (d *Dataplane) read(ctx context.Context, onlyOurs bool) (l *listing, err error) {
	l = &listing{endpoints: map[hns.GUID]*hns.Endpoint{}, balancers: map[hns.GUID]*hns.LoadBalancer{}}
	if l.version, err = d.client.Version(); err != nil {
		return nil, err
	}
	if l.network, err = d.client.NetworkNamed(d.Windows.Network); err != nil {
		return nil, err
	}
	ids, err := d.client.IDs(hns.Endpoints, nil)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		e, err := d.endpointOf(ctx, id, l.network.ID)
		if err != nil {
			return nil, err
		}
		if e != nil {
			l.endpoints[id] = e
		}
	}
	if ids, err = d.client.IDs(hns.LoadBalancers, nil); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if onlyOurs && !id.IsOurs() {
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		b, err := d.client.LoadBalancer(id)
		if failed(id, err) {
			return nil, err
		}
		if err == nil {
			l.balancers[id] = b
		}
	}
	return l, nil
}

// endpointOf returns an endpoint, nil if it is of another network or gone.
func (d *Dataplane) endpointOf(ctx context.Context, id, network hns.GUID) (*hns.Endpoint, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	e, err := d.client.Endpoint(id)
	if failed(id, err) {
		return nil, err
	}
	if err != nil || e.HostComputeNetwork == nil || *e.HostComputeNetwork != network {
		return nil, nil
	}
	return e, nil
}

// failed reports whether an object could not be read that matters: not if it has just gone, nor if it
// is another program's and cannot be understood.
func failed(id hns.GUID, err error) bool {
	var code hns.Code
	return err != nil && !hns.IsGone(err) && (id.IsOurs() || errors.As(err, &code))
}

// addressesOf returns those of an endpoint.
func addressesOf(e *hns.Endpoint) (all []netip.Addr) {
	for _, c := range e.IPConfigurations {
		all = append(all, c.IPAddress)
	}
	return all
}
