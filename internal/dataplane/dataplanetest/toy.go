package dataplanetest

import (
	"context"
	"errors"
	"maps"
	"sync"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
)

// Toy is a mode that programs nothing, with as little as a mode may have.
var Toy = dataplane.Mode{
	Name: "toy",
	Open: func(context.Context, dataplane.Options) (dataplane.Dataplane, error) { return &toy{}, nil },
	Configuration: dataplane.Configuration{
		Section:           "nftables",
		MasqueradeSection: "nftables",
	},
}

// toy remembers what it was given.
type toy struct {
	mu        sync.Mutex
	frontends map[plan.Key]*plan.Frontend // nil before the first Reconcile
}

var errNotReconciled = errors.New("nothing was reconciled yet")

func (d *toy) Reconcile(_ context.Context, desired *plan.Desired) dataplane.Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frontends = map[plan.Key]*plan.Frontend{}
	maps.Copy(d.frontends, desired.Frontends)
	return dataplane.Result{}
}

func (d *toy) Apply(_ context.Context, change *plan.Change) dataplane.Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.frontends == nil {
		return dataplane.Result{Err: errNotReconciled}
	}
	for _, k := range change.Removed {
		delete(d.frontends, k)
	}
	for _, f := range change.Set {
		d.frontends[f.Key] = f
	}
	return dataplane.Result{}
}

// Verify reports whether there is anything to verify.
func (d *toy) Verify(context.Context) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.frontends != nil, nil
}

func (d *toy) Disturbed() <-chan struct{} { return nil }

func (d *toy) Repair(context.Context) dataplane.Result { return dataplane.Result{} }

func (d *toy) Close() error { return nil }
