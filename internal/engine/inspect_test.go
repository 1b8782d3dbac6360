package engine

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestViewIsConsistent(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 500 {
				b.Update(web(fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250), 0))
			}
		}()
		for seen := 0; seen < 500; {
			b.Inspect(func(v View) {
				seen = len(v.State.Services())
				if planned := len(v.Desired.Frontends); planned != seen {
					t.Fatalf("%d Services are known and %d planned", seen, planned)
				}
			})
		}
		<-done
	})
}

func TestViewVersionChanges(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		version := func() (out uint64) {
			synctest.Wait()
			b.Inspect(func(v View) { out = v.Version })
			return out
		}
		last := version()
		for _, step := range []struct {
			name    string
			do      func()
			changes bool
		}{
			{"what is learned at the start", func() { b.Update(web("10.0.0.1", 0)) }, true},
			{"the end of the start", func() { b.sync() }, true},
			{"nothing", func() { time.Sleep(time.Hour) }, false},
			{"a change", func() { b.Update(web("10.0.0.2", 0)) }, true},
			{"another configuration", func() { b.SetPlanConfig(plan.Config{NodeName: "other"}) }, true},
			{"other periods", func() { b.SetPeriods(0, time.Minute) }, false},
		} {
			step.do()
			now := version()
			if changed := now != last; changed != step.changes {
				t.Errorf("%s: the version went from %d to %d", step.name, last, now)
			}
			last = now
		}
	})
}

func TestEvidenceMayBeKept(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		slice := func(addr string) model.SetSlice {
			return model.SetSlice{Slice: &model.Slice{
				Name: webName("s"), Service: "10.0.0.1", Family: model.IPv4,
				Ports:     []model.SlicePort{{Protocol: model.TCP, Port: 8080}},
				Endpoints: []model.Endpoint{{Addr: netip.MustParseAddr(addr), Conditions: model.Ready}},
			}}
		}
		b.Update(web("10.0.0.1", 0), slice("10.1.0.1"))
		b.sync()
		var kept plan.Evidence
		b.Inspect(func(v View) { kept = v.Evidence(webName("10.0.0.1")) })
		b.Update(slice("10.1.0.2"))
		synctest.Wait()
		if got := kept.PoolDecision(kept.Frontends()[0]).Endpoints[0].Endpoint.Addr.String(); got != "10.1.0.1" {
			t.Errorf("the evidence has changed: its endpoint is %s", got)
		}
	})
}

func TestProgressIsLogged(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		release := b.kernel.holdCommits()
		start := time.Now()
		b.Update(web("10.0.0.1", 0))
		synctest.Wait()
		for i := range 12 { // seconds
			b.progressed(dataplane.Progress{Done: i, Total: 100, Transactions: i})
			time.Sleep(time.Second)
		}
		if s := b.Status(); s.Progress.Done != 11 || s.Progress.Total != 100 || !s.WritingSince.Equal(start) {
			t.Errorf("the progress is %+v since %s", s.Progress, s.WritingSince)
		}
		if lines := b.logged("Still programming"); len(lines) != 2 {
			t.Errorf("it was logged %d times in 12 s, want 2: %q", len(lines), lines)
		}
		release()
		synctest.Wait()
		if s := b.Status(); s.Progress != (dataplane.Progress{}) || !s.WritingSince.IsZero() {
			t.Errorf("there is progress after the end: %+v since %s", s.Progress, s.WritingSince)
		}
	})
}
