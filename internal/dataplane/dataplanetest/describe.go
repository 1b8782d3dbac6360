package dataplanetest

import (
	"context"
	"net/netip"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
)

// Describing is a dataplane that can be asked what it programmed.
type Describing interface {
	dataplane.Dataplane
	dataplane.Describer
}

// DescribeWhileChanging changes the endpoints of a frontend that is programmed so
// many times, and asks for it all the while: it is there, with one of its pools.
func DescribeWhileChanging(t *testing.T, d Describing, at dataplane.Destination, f *plan.Frontend, times int) {
	t.Helper()
	pool := Endpoints("10.244.0.1:8080", "10.244.0.2:8080", "10.244.0.3:8080")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range times {
			changed := *f
			changed.Route.Endpoints = pool[:1+i%len(pool)]
			if r := d.Apply(context.Background(), &plan.Change{Set: []*plan.Frontend{&changed}}); r.Err != nil || len(r.Failed) > 0 {
				t.Errorf("not programmed: %v %v", r.Err, r.Failed)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if got, err := d.Describe(t.Context(), at, netip.Addr{}); err != nil || !got.Present || got.RouteSize > len(pool) {
			t.Errorf("%+v, %v", got, err)
			<-done
			return
		}
	}
}
