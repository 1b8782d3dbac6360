package enginetest

import (
	"context"
	"iter"
	"maps"
	"net/netip"
	"sync"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
)

// Dataplane is a dataplane that programs nothing and does what a test sets.
type Dataplane struct {
	mu     sync.Mutex
	is     Behaviour
	report func(dataplane.Progress)
}

// Behaviour is what a Dataplane does. The zero value accepts everything.
type Behaviour struct {
	Err    error                // of every commit
	Refuse map[netip.Addr]error // errors of the frontends at an address
	Hold   chan struct{}        // commits wait until it is closed
	// Progress is reported by every commit.
	Progress dataplane.Progress
	// Connections are the counters of frontends.
	Connections map[plan.Key]int64
	// Refused are packets that frontends without an endpoint refused.
	Refused  map[plan.Key]int64
	Describe func(dataplane.Destination, netip.Addr) (dataplane.Description, error)
}

// Set changes the behaviour.
func (d *Dataplane) Set(change func(*Behaviour)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.is)
}

func (d *Dataplane) behaviour() (Behaviour, func(dataplane.Progress)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	is := d.is
	is.Refuse, is.Connections = maps.Clone(is.Refuse), maps.Clone(is.Connections)
	is.Refused = maps.Clone(is.Refused)
	return is, d.report
}

// Reconcile, Apply, Verify, Repair, Disturbed and Close are for
// dataplane.Dataplane.
func (d *Dataplane) Reconcile(ctx context.Context, desired *plan.Desired) dataplane.Result {
	return d.commit(ctx, maps.Keys(desired.Frontends))
}

func (d *Dataplane) Apply(ctx context.Context, change *plan.Change) dataplane.Result {
	return d.commit(ctx, func(yield func(plan.Key) bool) {
		for _, f := range change.Set {
			if !yield(f.Key) {
				return
			}
		}
	})
}

func (d *Dataplane) commit(ctx context.Context, keys iter.Seq[plan.Key]) dataplane.Result {
	is, report := d.behaviour()
	if report != nil {
		report(is.Progress)
	}
	if is.Hold != nil {
		select {
		case <-is.Hold:
			is, _ = d.behaviour()
		case <-ctx.Done():
			return dataplane.Result{Err: ctx.Err()}
		}
	}
	r := dataplane.Result{Err: is.Err, Failed: map[plan.Key]error{}, Transactions: 1}
	for key := range keys {
		r.Elements++
		if err := is.Refuse[key.Addr]; err != nil {
			r.Failed[key] = err
		}
	}
	return r
}

func (d *Dataplane) Verify(context.Context) (bool, error)    { return true, nil }
func (d *Dataplane) Repair(context.Context) dataplane.Result { return dataplane.Result{} }
func (d *Dataplane) Disturbed() <-chan struct{}              { return nil }
func (d *Dataplane) Close() error                            { return nil }

// OnProgress is for dataplane.ProgressReporter.
func (d *Dataplane) OnProgress(report func(dataplane.Progress)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report = report
}

// Traffic is a dataplane.TrafficFunc.
func (d *Dataplane) Traffic(_ context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.UnmatchedTraffic, error) {
	is, _ := d.behaviour()
	for key, n := range is.Connections {
		each(key, dataplane.Traffic{Attempts: uint64(n + is.Refused[key]), Connections: n, Refused: [plan.NumFrontendRefusals]int64{plan.NoEndpoints: is.Refused[key]}})
	}
	return dataplane.UnmatchedTraffic{}, nil
}

// Describe is for dataplane.Describer.
func (d *Dataplane) Describe(_ context.Context, at dataplane.Destination, client netip.Addr) (dataplane.Description, error) {
	is, _ := d.behaviour()
	return is.Describe(at, client)
}
