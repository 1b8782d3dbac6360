package kernelspace

import (
	"errors"
	"fmt"

	"sluice/internal/kernel/hns"
)

// setBalancer creates or changes a load balancer. If some of its endpoints are missing it leads to the
// others, and the error names one. Where HNS keeps another one of ours, that one serves on.
func (w *writer) setBalancer(b *balancer) error {
	if old := w.kept[b.at]; old.err != nil && old.id != b.id {
		return old.err
	}
	ids, missing := w.resolve(b)
	if len(ids) == 0 {
		return errors.Join(missing, w.deleteBalancer(b))
	}
	wanted := b.document(ids)
	now := w.balancers[b.id]
	if now != nil && sameBalancer(now, &wanted) {
		return missing
	}
	if now != nil && w.version.ModifiesLoadBalancers() {
		err := w.done(w.client.ModifyLoadBalancer(&wanted))
		if err == nil {
			w.remember(b.id, &wanted)
			return missing
		}
		w.failures.add(updateFailures, b, err)
		if !hns.IsGone(err) && !errors.Is(err, hns.NotImplemented) {
			return errors.Join(missing, err)
		}
	}
	if err := w.deleteBalancer(b); err != nil {
		return errors.Join(missing, err)
	}
	return errors.Join(missing, w.createBalancer(b, &wanted))
}

// createBalancer creates a load balancer where there is none of ours.
func (w *writer) createBalancer(b *balancer, wanted *hns.LoadBalancer) error {
	err := w.done(w.client.CreateLoadBalancer(wanted))
	if err == nil {
		w.remember(b.id, wanted)
		return nil
	}
	if errors.Is(err, hns.AlreadyExists) {
		if now, e := w.client.LoadBalancer(b.id); e == nil { // an earlier attempt succeeded, and did not say so
			w.remember(b.id, now)
			return w.setBalancer(b)
		}
	}
	if other := w.strangers[b.at]; hns.IsTaken(err) && other != nil {
		if sameBalancer(other, wanted) && other.Flags == wanted.Flags {
			return nil // it is served
		}
		err = fmt.Errorf("%w: load balancer %v of another program answers there (if it is of an earlier kube-proxy: Get-HnsPolicyList | Where-Object Id -eq '%v' | Remove-HnsPolicyList)", err, other.ID, other.ID)
	}
	w.failures.add(createFailures, b, err)
	return err
}

// deleteBalancer deletes a load balancer, if it is there.
func (w *writer) deleteBalancer(b *balancer) error {
	if w.balancers[b.id] == nil {
		return nil
	}
	if err := w.done(w.client.Delete(hns.LoadBalancers, b.id)); err != nil {
		w.failures.add(deleteFailures, b, err)
		err = fmt.Errorf("the old load balancer stays: %w", err)
		w.kept[b.at] = refusal{b.id, err}
		return err
	}
	delete(w.kept, b.at)
	w.remember(b.id, nil)
	return nil
}

// remember notes what became of a load balancer.
func (w *writer) remember(id hns.GUID, now *hns.LoadBalancer) {
	w.Locked(func() {
		before := w.balancers[id]
		if now != nil {
			w.endpoints.use(now.HostComputeEndpoints...)
			w.balancers[id] = now
		} else {
			delete(w.balancers, id)
		}
		if before != nil {
			w.endpoints.leave(before.HostComputeEndpoints...)
		}
	})
}

// resolve returns the endpoints of a load balancer, those that there are.
func (w *writer) resolve(b *balancer) (ids []hns.GUID, missing error) {
	if len(b.to) == 0 {
		for _, e := range w.endpoints.byID {
			if e.Name == w.RootEndpoint {
				return []hns.GUID{e.ID}, nil
			}
		}
		return nil, fmt.Errorf("HNS has no endpoint %q for the health checks of load balancers (set --root-hnsendpoint-name)", w.RootEndpoint)
	}
	for _, to := range b.to {
		e, err := w.endpointFor(to)
		if err != nil {
			missing = err
			continue
		}
		ids = append(ids, e.ID)
	}
	return ids, missing
}
