package kernelspace

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/kernel/hns"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// pin makes the endpoint that an overlay needs for a ClusterIP.
func (w *writer) pin(f *plan.Frontend, wanted bool) error {
	if !wanted || f.Kind != plan.ClusterIP || !w.network.IsOverlay() || w.pins[f.Key] != (hns.GUID{}) {
		return nil
	}
	e := w.endpoints.at[f.Addr]
	if e == nil {
		node := w.provider(f.Addr)
		mac, err := w.InterfaceOf(node)
		if err == nil {
			e, err = w.createEndpoint(remoteEndpoint(w.network.ID, f.Addr, node, mac))
		}
		if err != nil {
			return w.fail(f.Key, err)
		}
	}
	w.Locked(func() {
		w.endpoints.use(e.ID)
		w.pins[f.Key] = e.ID
	})
	return nil
}

// endpointFor returns the endpoint of an address. Those of pods on this node are the CNI plugin's;
// others are made.
func (w *writer) endpointFor(to plan.Endpoint) (*hns.Endpoint, error) {
	e := w.endpoints.at[to.Addr()]
	switch {
	case e != nil && w.moved(e):
		return nil, fmt.Errorf("%v was on another node, and HNS has it there as long as a load balancer leads to it", to.Addr())
	case e != nil && !(to.Local && e.ID.IsOurs()):
		return e, nil
	case to.Local:
		return nil, fmt.Errorf("HNS has no endpoint for %v, which runs on this node (the CNI plugin makes it; processes of the node itself have none)", to.Addr())
	}
	node := w.provider(to.Addr())
	if w.network.IsOverlay() && !node.IsValid() {
		return nil, errors.New("the address of this node is not known yet")
	}
	return w.createEndpoint(remoteEndpoint(w.network.ID, to.Addr(), node, inventMAC(to.Addr())))
}

func (w *writer) createEndpoint(e *hns.Endpoint) (*hns.Endpoint, error) {
	err := w.done(w.client.CreateEndpoint(w.network.ID, e))
	if errors.Is(err, hns.AlreadyExists) { // an earlier attempt succeeded, and did not say so
		_, err = w.client.Endpoint(e.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", e.IPConfigurations[0].IPAddress, err)
	}
	w.Locked(func() { w.endpoints.add(e) })
	return e, nil
}

// moved reports whether an endpoint of ours is of an address that is on another node now.
func (d *Dataplane) moved(e *hns.Endpoint) bool {
	if !d.network.IsOverlay() || !e.ID.IsOurs() || !e.Remote() {
		return false
	}
	ip := e.IPConfigurations[0].IPAddress
	node := d.provider(ip)
	return node.IsValid() && e.ID != endpointID(d.network.ID, ip, node)
}

// replaceMoved deletes our endpoints of addresses that are on another node now, and the load balancers
// that lead there. They are made again.
func (w *writer) replaceMoved() error {
	for id, e := range maps.Clone(w.endpoints.byID) {
		if !w.moved(e) {
			continue
		}
		for _, b := range maps.Clone(w.balancers) {
			if !slices.Contains(b.HostComputeEndpoints, id) {
				continue
			}
			old := w.balancerWithID(b.ID)
			if err := w.fail(old.at, w.deleteBalancer(&old)); err != nil {
				return err
			}
		}
		if w.endpoints.uses[id] > 0 {
			continue // HNS keeps a load balancer, which is tried again
		}
		if err := w.deleteEndpoint(id); err != nil {
			return err
		}
	}
	return nil
}

// sourceEndpoint makes the endpoint of the source address of an overlay.
func (w *writer) sourceEndpoint() error {
	if !w.network.IsOverlay() {
		return nil
	}
	if !w.SourceVIP.IsValid() {
		return errors.New("the network is an overlay, and there is no source address for connections to its pods (set --source-vip to an address of the node's pod range that no pod has)")
	}
	e := w.endpoints.at[w.SourceVIP]
	if e == nil {
		mac, err := w.InterfaceOf(w.settings.PrimaryIP(model.IPv4))
		if err == nil {
			e, err = w.createEndpoint(&hns.Endpoint{ID: endpointID(w.network.ID, w.SourceVIP, netip.Addr{}), MACAddress: mac, IPConfigurations: []hns.IPConfig{{IPAddress: w.SourceVIP}}})
		}
		if err != nil {
			return fmt.Errorf("make the endpoint of --source-vip: %w", err)
		}
	}
	w.Locked(func() { w.endpoints.use(e.ID) })
	return nil
}

// deleteIdle deletes the endpoints of ours that nothing uses. One that HNS keeps is tried again with
// the next change.
func (w *writer) deleteIdle() error {
	for id := range maps.Clone(w.endpoints.idle) {
		if err := w.deleteEndpoint(id); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) deleteEndpoint(id hns.GUID) error {
	err := w.done(w.client.Delete(hns.Endpoints, id))
	if errors.Is(err, hns.NotRunning) || w.ctx.Err() != nil {
		return err
	}
	if err != nil {
		w.Logger.Error(err, "An endpoint that is not used any more stays in HNS")
		return nil
	}
	w.Locked(func() { w.endpoints.remove(id) })
	return nil
}
