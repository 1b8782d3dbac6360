package kernelspace

import (
	"context"
	"errors"
	"slices"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/hns"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// writer changes what HNS holds, and what is remembered of it. Its methods return errors after which
// nothing can go on; what harms one frontend only is in the Result.
type writer struct {
	*Dataplane
	ctx    context.Context
	Result dataplane.Result
	// rerouted means that an endpoint of an overlay was found to be on another node than before.
	rerouted bool
}

func (d *Dataplane) writer(ctx context.Context) *writer { return &writer{Dataplane: d, ctx: ctx} }

// done counts a call that changed something, or passes on an error.
func (w *writer) done(err error) error {
	if err == nil {
		w.Result.Transactions++
		w.Result.Elements++
	}
	return err
}

// fail notes what is wrong with a frontend, once, and returns the error if it concerns all of them.
func (w *writer) fail(k plan.Key, err error) error {
	if err == nil || errors.Is(w.Result.Failed[k], err) {
		return nil
	}
	if w.ctx.Err() != nil || errors.Is(err, hns.NotRunning) || errors.Is(err, hns.NetworkNotFound) {
		return err
	}
	w.stale = w.stale || errors.Is(err, hns.EndpointNotFound)
	if w.Result.Failed == nil {
		w.Result.Failed = map[plan.Key]error{}
	}
	w.Result.Failed[k] = errors.Join(w.Result.Failed[k], err)
	return nil
}

// removeFrontend deletes the load balancers that no other frontend wants.
func (w *writer) removeFrontend(k plan.Key) error { return w.want(k, nil) }

// removeStale deletes a load balancer of ours that no frontend wants, made by an earlier process or for
// other settings, or has that frontend do so that takes its place.
func (w *writer) removeStale(id hns.GUID) error {
	b := w.balancerWithID(id)
	if w.frontends[b.at] != nil {
		w.owe(b.at, b)
		return nil
	}
	err := w.deleteBalancer(&b)
	if err != nil && b.at.Addr.IsValid() {
		w.owe(b.at, b)
	}
	return w.fail(b.at, err)
}

// balancerWithID returns what is known of a load balancer of ours that no frontend wants.
func (w *writer) balancerWithID(id hns.GUID) balancer {
	b := balancer{id: id, label: "other"}
	if keys := keysOf(w.balancers[id]); len(keys) > 0 {
		b.at = keys[0]
	}
	return b
}

// owe notes a load balancer that is to be deleted the next time that a frontend is written.
func (w *writer) owe(k plan.Key, b balancer) {
	w.Locked(func() { w.wanted[k] = append(w.wanted[k], b) })
	w.wants[b.id]++
}

// setFrontend makes the load balancers of a frontend what they should be.
func (w *writer) setFrontend(f *plan.Frontend) error {
	all := w.wantedOf(f)
	if len(all) > 0 && f.Family() == model.IPv6 {
		if err := lacksIPv6(w.version, w.network); err != nil {
			return errors.Join(w.want(f.Key, nil), w.fail(f.Key, err))
		}
	}
	if err := w.want(f.Key, all); err != nil {
		return err
	}
	if err := w.pin(f, len(all) > 0); err != nil {
		return err
	}
	for i := range all {
		if err := w.fail(f.Key, w.setBalancer(&all[i])); err != nil {
			return err
		}
	}
	return nil
}

// want notes which load balancers a frontend wants, and deletes those that none wants any more.
func (w *writer) want(k plan.Key, all []balancer) error {
	before := w.wanted[k]
	for _, b := range all {
		w.wants[b.id]++
	}
	w.Locked(func() {
		if w.wanted[k] = slices.Clone(all); len(all) == 0 {
			delete(w.wanted, k)
		}
	})
	for i := range before {
		b := &before[i]
		if w.wants[b.id]--; w.wants[b.id] > 0 {
			continue
		}
		delete(w.wants, b.id)
		if err := w.deleteBalancer(b); err != nil {
			w.owe(k, *b)
			if err := w.fail(k, err); err != nil {
				return err
			}
		}
	}
	if len(all) > 0 || w.pins[k] == (hns.GUID{}) {
		return nil
	}
	w.Locked(func() {
		w.endpoints.leave(w.pins[k])
		delete(w.pins, k)
	})
	return nil
}
