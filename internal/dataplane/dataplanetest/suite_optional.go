package dataplanetest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// whileChanging changes the endpoints of a frontend some times, and looks all the
// while.
func whileChanging(t *testing.T, d dataplane.Dataplane, f *plan.Frontend, look func() error) {
	t.Helper()
	pool := Endpoints("10.244.0.1:8080", "10.244.0.2:8080", "10.244.0.3:8080")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20 {
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
		if err := look(); err != nil {
			t.Error(err)
			<-done
			return
		}
	}
}

func (s *suite) testVerifyWhileChanging(t *testing.T) {
	n, desired := s.newNode(t), s.variety()
	d := n.reconciled(desired)
	whileChanging(t, d, desired.Frontends[Key("10.96.0.1:80", model.TCP)], func() error {
		if good, err := d.Verify(t.Context()); err != nil || !good {
			return fmt.Errorf("Verify says %v, %v", good, err)
		}
		return nil
	})
}

func (s *suite) testDescribe(t *testing.T) {
	n, desired := s.newNode(t), s.variety()
	d := n.open()
	describer := d.(dataplane.Describer)
	describe := func(k plan.Key) (dataplane.Description, error) {
		at := dataplane.Destination{Key: k, IP: k.Addr}
		if k.NodePort() {
			i := slices.IndexFunc(desired.Settings.NodePortIPs, func(ip netip.Addr) bool { return model.FamilyOf(ip) == k.Family() })
			at.IP = desired.Settings.NodePortIPs[i]
		}
		return describer.Describe(t.Context(), at, netip.Addr{})
	}
	web := Key("10.96.0.1:80", model.TCP)
	if _, err := describe(web); err == nil {
		t.Error("Describe before Reconcile is not an error")
	}
	OK(t, d.Reconcile(t.Context(), desired))
	for k, f := range desired.Frontends {
		outside := 0
		if f.Outside != nil {
			outside = len(f.Outside.Endpoints)
		}
		got, err := describe(k)
		if err != nil || !got.Present || len(got.Objects) == 0 || got.RouteSize != len(f.Route.Endpoints) || got.OutsideSize != outside {
			t.Errorf("%s: %+v, %v; want %d endpoints and %d outside", k, got, err, len(f.Route.Endpoints), outside)
		}
	}
	if got, err := describe(Key("10.96.0.1:81", model.TCP)); err != nil || got.Present {
		t.Errorf("a frontend that is not there: %+v, %v", got, err)
	}
	whileChanging(t, d, desired.Frontends[web], func() error {
		if got, err := describe(web); err != nil || !got.Present || got.RouteSize > 3 {
			return fmt.Errorf("while it changes: %+v, %w", got, err)
		}
		return nil
	})
}

func (s *suite) testTraffic(t *testing.T) {
	n, desired := s.newNode(t), s.variety()
	d := n.open()
	reader := d.(dataplane.TrafficReader)
	if _, err := reader.Traffic(t.Context(), func(plan.Key, dataplane.Traffic) {}); err == nil {
		t.Error("Traffic before Reconcile is not an error")
	}
	OK(t, d.Reconcile(t.Context(), desired))
	seen := map[plan.Key]bool{}
	unmatched, err := reader.Traffic(t.Context(), func(k plan.Key, traffic dataplane.Traffic) {
		if desired.Frontends[k] == nil || seen[k] || traffic != (dataplane.Traffic{}) {
			t.Errorf("%s has %+v", k, traffic)
		}
		seen[k] = true
	})
	if err != nil || unmatched != (dataplane.UnmatchedTraffic{}) || len(seen) != len(desired.Frontends) {
		t.Errorf("%d of %d frontends, unmatched %+v, %v", len(seen), len(desired.Frontends), unmatched, err)
	}
}

func (s *suite) testProgress(t *testing.T) {
	n, desired := s.newNode(t), s.variety()
	d := n.open()
	reporter := d.(dataplane.ProgressReporter)
	var reports []dataplane.Progress
	reporter.OnProgress(func(p dataplane.Progress) { reports = append(reports, p) })
	r := OK(t, d.Reconcile(t.Context(), desired))
	if len(reports) == 0 {
		t.Error("no progress was reported")
	}
	var last dataplane.Progress
	for _, p := range reports {
		if p.Total != len(desired.Frontends) || p.Done < last.Done || p.Done > p.Total ||
			p.Transactions < last.Transactions || p.Transactions > r.Transactions {
			t.Errorf("reported %+v after %+v", p, last)
		}
		last = p
	}
}

// What is counted is described by the mode, and the other way about.
func (s *suite) testCounters(t *testing.T) {
	n := s.newNode(t)
	d := n.reconciled(s.variety())
	counter, ok := d.(dataplane.Counter)
	if ok != (len(s.mode.Counters) > 0) {
		t.Fatalf("the mode has %d counters, and the dataplane is a Counter: %v", len(s.mode.Counters), ok)
	}
	if !ok {
		return
	}
	counter.Count(t.Context(), model.Families[:], func(metric string, value float64, labels ...string) {
		i := slices.IndexFunc(s.mode.Counters, func(m dataplane.Metric) bool { return m.Name == metric })
		if i < 0 || len(labels) != len(s.mode.Counters[i].Labels) || value < 0 {
			t.Errorf("%s of %v is %v, and the mode's counters are %+v", metric, labels, value, s.mode.Counters)
		}
	})
}
