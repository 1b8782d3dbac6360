//go:build linux

package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// fakeTable stands in for the kernel's, in a bubble of synctest.
type fakeTable struct {
	entries []*flow
	takes   time.Duration // on the clock
	costs   time.Duration // of processor time
	failing atomic.Bool
	strict  bool // connections met half way are not tracked

	passes []time.Duration // when they began, since the beginning
	swept  []kinds         // in each pass
	began  time.Time
}

func (t *fakeTable) sweep(_ context.Context, which kinds, stale func(*flow) bool) (sweepResult, error) {
	t.passes = append(t.passes, time.Since(t.began))
	t.swept = append(t.swept, which)
	time.Sleep(t.takes)
	if t.failing.Load() {
		return sweepResult{}, errors.New("no")
	}
	var kept []*flow
	for _, f := range t.entries {
		if !slices.ContainsFunc(which, func(k kind) bool { return k.includes(f) }) || !stale(f) {
			kept = append(kept, f)
		}
	}
	count := sweepResult{seen: len(t.entries), deleted: len(t.entries) - len(kept), cost: t.costs}
	t.entries = kept
	return count, nil
}

// answerers lists by whom the flows that are left are answered.
func (t *fakeTable) answerers() (list []string) {
	for _, f := range t.entries {
		list = append(list, f.By.String())
	}
	return list
}

// elapse lets time pass, and all that falls into it be done.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Stats counts passes and what they did.
type Stats struct {
	Passes, Failures, Seen, Deleted uint64
	LastDuration                    time.Duration
}

// counter keeps Stats.
type counter struct {
	mu    sync.Mutex
	stats Stats
}

func (c *counter) count(p Pass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Passes++
	c.stats.Seen += uint64(p.Seen)
	c.stats.Deleted += uint64(p.Deleted)
	c.stats.LastDuration = p.Duration
	if p.Err != nil {
		c.stats.Failures++
	}
}

func (c *counter) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// fixture is a Reconciler at work on a table, and what is desired by now.
type fixture struct {
	*Reconciler
	counter
	t      *testing.T
	table  *fakeTable
	engine fakeEngine
	logged []string
	// noRoutes keeps the kernel from saying which addresses are local.
	noRoutes atomic.Bool
}

func (b *fixture) Committed(c *engine.Commit) { b.Reconciler.Committed(b.engine.commit(c)) }

// fakeEngine is an Engine whose commits a test makes.
type fakeEngine struct {
	mu       sync.Mutex
	told     enginetest.Told
	settings plan.Settings
	refused  map[plan.Key]error
	// planned is desired and not yet committed; nil if there is no such thing.
	planned map[plan.Key]*plan.Frontend
}

// commit returns a commit as observers get it.
func (e *fakeEngine) commit(c *engine.Commit) *engine.Commit {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.told == nil {
		e.told = enginetest.Told{}
	}
	if c.Change.Settings != nil {
		e.settings = *c.Change.Settings
	}
	e.refused = c.Result.Failed
	return e.told.Complete(c)
}

func (e *fakeEngine) plan(frontends map[plan.Key]*plan.Frontend) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.planned = frontends
}

func (e *fakeEngine) Inspect(read func(engine.View)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := &plan.Desired{Frontends: e.told, Settings: e.settings}
	if e.planned != nil {
		d.Frontends = e.planned
	}
	read(engine.View{Desired: d})
}

// Unsettled is called while Inspect is.
func (e *fakeEngine) Unsettled(key plan.Key) (s engine.FrontendStatus, is bool) {
	switch {
	case e.planned != nil && e.planned[key] != e.told[key]:
		return engine.FrontendStatus{Phase: engine.Pending, Before: e.told[key]}, true
	case e.refused[key] != nil:
		return engine.FrontendStatus{Phase: engine.Failed}, true
	}
	return s, false
}

func (e *fakeEngine) Settled() bool { return e.planned == nil && len(e.refused) == 0 }

// inBubble runs a test in a bubble with a time of its own.
func inBubble(t *testing.T, test func(t *testing.T, b *fixture)) { inBubbleWith(t, Options{}, test) }

func inBubbleWith(t *testing.T, o Options, test func(t *testing.T, b *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		b := &fixture{t: t, table: &fakeTable{began: time.Now()}}
		o.Logger = funcr.New(func(_, args string) { b.logged = append(b.logged, args) }, funcr.Options{})
		o.Engine, o.OnPass = &b.engine, b.count
		b.Reconciler = New(o)
		b.Reconciler.sweep = b.table.sweep
		b.Reconciler.tcpLoose = func() (bool, error) { return !b.table.strict, nil }
		b.Reconciler.isLocal = func(ip netip.Addr) (bool, error) {
			if b.noRoutes.Load() {
				return false, errors.New("no")
			}
			return byRoute(ip), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		test(t, b)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func (b *fixture) set(frontends ...*plan.Frontend) { b.apply(&plan.Change{Set: frontends}) }

func (b *fixture) apply(change *plan.Change) {
	b.Committed(&engine.Commit{Kind: engine.Apply, Change: change})
}

func (b *fixture) reconcile(change *plan.Change) {
	b.Committed(&engine.Commit{Kind: engine.Reconcile, Change: change})
}

func (b *fixture) wantPasses(want ...time.Duration) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.table.passes); diff != "" {
		b.t.Errorf("passes began (-want +got):\n%s", diff)
	}
}

func (b *fixture) wantAnsweredBy(want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.table.answerers()); diff != "" {
		b.t.Errorf("flows left are answered by (-want +got):\n%s", diff)
	}
}

const (
	web = "10.96.0.1:53"
	old = "10.244.1.1:53"
	now = "10.244.1.2:53"
)

func TestFlowToRemovedEndpointIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		b.table.entries = []*flow{flowOf(model.UDP, web, old), flowOf(model.UDP, web, now), flowOf(model.TCP, web, old)}
		b.set(frontend(web, old, now))
		elapse(time.Minute)
		b.wantAnsweredBy(old, now, old)
		b.set(frontend(web, now))
		elapse(time.Minute)
		b.wantAnsweredBy(now, old) // the latter by TCP
		b.wantPasses(settle, time.Minute+settle)
		want := Stats{Passes: 2, Seen: 6, Deleted: 1}
		if diff := cmp.Diff(want, b.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
	})
}

func TestRemovedFrontendIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		b.set(frontend(web, old))
		elapse(time.Minute)
		b.table.entries = []*flow{flowOf(model.UDP, web, old)}
		b.apply(&plan.Change{Removed: []plan.Key{udp(web)}})
		elapse(time.Minute)
		b.wantAnsweredBy()
		// Another Service uses the address now.
		b.table.entries = []*flow{flowOf(model.UDP, web, old)}
		b.set(frontend("10.96.0.2:53", old))
		elapse(time.Minute)
		b.wantAnsweredBy(old)
	})
}

// Flows of a Service that another proxy serves now are that one's.
func TestReleasedFrontendIsLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		released := frontend(web, old)
		released.Released = true
		b.set(frontend(web, old))
		elapse(time.Minute)
		b.set(frontend("10.96.0.2:53", old))
		b.set(released)
		elapse(time.Minute)
		b.table.entries = []*flow{flowOf(model.UDP, web, old)}
		b.apply(&plan.Change{Removed: []plan.Key{udp(web)}, Before: map[plan.Key]*plan.Frontend{udp(web): released}})
		b.set(frontend("10.96.0.2:53", now)) // and a pass is due
		elapse(time.Minute)
		b.wantAnsweredBy(old)
	})
}

func TestNoPassWithoutStaleEntries(t *testing.T) {
	tcp := frontend(web, now)
	tcp.Protocol = model.TCP
	settings := plan.Settings{NodePortIPs: []netip.Addr{addr("192.0.2.10")}}
	tests := []struct {
		name   string
		kind   engine.Kind
		change plan.Change
		want   int // passes
	}{
		{"nothing", engine.None, plan.Change{}, 0},
		{"a first endpoint of TCP", engine.Apply, plan.Change{Set: []*plan.Frontend{tcp}}, 0},
		{"one more endpoint", engine.Apply, plan.Change{Set: []*plan.Frontend{frontend(web, old, now)}}, 0},
		{"settings of no concern", engine.Apply, plan.Change{Settings: &plan.Settings{NodePortIPs: settings.NodePortIPs, MasqueradeMark: 1}}, 0},
		{"other node port addresses", engine.Apply, plan.Change{Settings: &plan.Settings{}}, 1},
		{"a repair", engine.Repair, plan.Change{}, 1},
		{"a reconcile", engine.Reconcile, plan.Change{}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *fixture) {
				b.reconcile(&plan.Change{Settings: &settings, Set: []*plan.Frontend{frontend(web, old)}})
				elapse(time.Minute)
				before := len(b.table.passes)
				b.Committed(&engine.Commit{Kind: tt.kind, Change: &tt.change})
				elapse(time.Minute)
				if got := len(b.table.passes) - before; got != tt.want {
					t.Errorf("%d passes, want %d", got, tt.want)
				}
			})
		})
	}
}

func TestNoPassWithoutFrontends(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		b.reconcile(&plan.Change{Settings: &plan.Settings{NodePortIPs: []netip.Addr{addr("192.0.2.10")}}})
		elapse(time.Minute)
		b.wantPasses()
	})
}

func TestChangesDuringAPassAreBatched(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		b.table.takes, b.table.costs = time.Second, time.Second
		b.set(frontend(web, old))
		elapse(settle + 500*time.Millisecond) // in the middle of the pass
		for range 10 {
			b.set(frontend(web, now))
			b.set(frontend(web, old))
			elapse(100 * time.Millisecond)
		}
		elapse(time.Minute)
		// The first ends after 1 s, and the second has to wait nine times that.
		b.wantPasses(settle, 10*time.Second+2*settle)

		elapse(time.Minute)
		quiet := time.Since(b.table.began)
		b.set(frontend(web, now))
		elapse(time.Minute)
		b.wantPasses(settle, 10*time.Second+2*settle, quiet+settle)
	})
}

func TestRestGoesByCPUTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		b.table.takes, b.table.costs = time.Second, time.Millisecond
		b.set(frontend(web, old))
		elapse(settle + 500*time.Millisecond) // in the middle of the pass
		b.set(frontend(web, now))
		elapse(time.Minute)
		b.wantPasses(settle, time.Second+rest+2*settle)
	})
}

func TestOvertakenVersionsCount(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		b.set(frontend(web, old))
		elapse(time.Minute)
		// Between two looks an endpoint came and went, and has a flow.
		b.table.entries = []*flow{flowOf(model.UDP, web, old), flowOf(model.UDP, web, now)}
		b.set(frontend(web, old, now))
		b.set(frontend(web, old))
		elapse(time.Minute)
		b.wantAnsweredBy(old)
	})
}

func TestFlowsOfACommitInProgressAreKept(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		// The new endpoint is in the kernel, but this is not known here yet.
		planned := frontend(web, old, now)
		b.engine.plan(map[plan.Key]*plan.Frontend{planned.Key: planned})
		b.table.entries = []*flow{flowOf(model.UDP, web, now), flowOf(model.UDP, web, "10.244.1.3:53")}
		b.set(frontend(web, old))
		elapse(time.Minute)
		b.wantAnsweredBy(now)
		b.set(planned)
		elapse(time.Minute)
		b.wantAnsweredBy(now)

		// A plan that is not committed keeps no flow for long.
		b.table.entries = []*flow{flowOf(model.UDP, web, now)}
		b.set(frontend(web, old))
		elapse(time.Minute)
		b.wantAnsweredBy(now)
		b.engine.plan(nil)
		b.apply(&plan.Change{})
		elapse(time.Minute)
		b.wantAnsweredBy()
	})
}

func TestRefusedFrontendIsLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		b.table.entries = []*flow{flowOf(model.UDP, web, old)}
		refused := dataplane.Result{Failed: map[plan.Key]error{udp(web): errors.New("no")}}
		b.Committed(&engine.Commit{Kind: engine.Reconcile, Change: &plan.Change{Set: []*plan.Frontend{frontend(web, now)}}, Result: refused})
		elapse(time.Minute)
		b.wantAnsweredBy(old)
		b.set(frontend(web, now))
		elapse(time.Minute)
		b.wantAnsweredBy()
	})
}

func TestFailedPassIsRetriedAndLoggedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		b.table.entries = []*flow{flowOf(model.UDP, web, old), flowOf(model.UDP, "10.96.0.2:53", old)}
		b.table.failing.Store(true)
		b.table.takes = time.Millisecond
		var passes []Pass
		b.OnPass = func(p Pass) { passes = append(passes, p); b.count(p) }
		b.set(frontend(web, now))
		elapse(time.Second)
		b.apply(&plan.Change{Removed: []plan.Key{udp("10.96.0.2:53")}})
		elapse(time.Second)
		b.wantAnsweredBy(old, old)
		failed := b.Stats().Failures
		if failed < 3 || failed > 6 {
			t.Errorf("tried %d times in 2 s", failed)
		}
		b.table.failing.Store(false)
		elapse(time.Minute)
		b.wantAnsweredBy()
		if got := b.Stats(); got.Failures != failed || got.Passes != failed+1 || got.Deleted != 2 {
			t.Errorf("stats %+v", got)
		}
		if len(b.logged) != 1 {
			t.Errorf("logged %q, want one line", b.logged)
		}
		if uint64(len(passes)) != failed+1 || passes[0].Err == nil {
			t.Errorf("%d passes, the first %+v; want all, and that it failed", len(passes), passes[0])
		}
		want := Pass{Duration: time.Millisecond, Seen: 2, Deleted: 2}
		if last := passes[len(passes)-1]; last != want {
			t.Errorf("last pass is %+v, want %+v", last, want)
		}
	})
}

func TestPassIsRetriedWithoutRoutingTable(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fixture) {
		b.table.entries = []*flow{flowOf(model.UDP, "203.0.113.5:30053", old), flowOf(model.UDP, "203.0.113.5:30053", now)}
		b.noRoutes.Store(true)
		b.reconcile(&plan.Change{
			Settings: &plan.Settings{NodePortAll4: true}, Set: []*plan.Frontend{frontend("0.0.0.0:30053", now)},
		})
		elapse(time.Second)
		if b.Stats().Failures == 0 {
			t.Error("no pass failed")
		}
		b.noRoutes.Store(false)
		elapse(time.Minute)
		b.wantAnsweredBy(now)
	})
}

// BenchmarkJudge judges entries that are none of ours.
func BenchmarkJudge(b *testing.B) {
	e := enginetest.New(b, plan.Config{NodeName: "node1", MasqueradeBit: 14})
	e.Start()
	e.Sync(enginetest.Service("default/dns", "10.96.0.10", func(s *model.Service) { s.Ports[0].Protocol = model.UDP }))
	r := New(Options{Engine: e})
	r.locals = locals{known: map[netip.Addr]bool{}}
	r.isLocal = func(ip netip.Addr) (bool, error) { return byRoute(ip), nil }
	r.index.configure(nodePortsOn("192.0.2.10"))
	f := flow{}
	f.Protocol, f.To, f.By = model.UDP, netip.MustParseAddrPort("203.0.113.7:1024"), netip.MustParseAddrPort("10.244.9.7:1024")
	judge := r.judge()
	b.ReportAllocs()
	for b.Loop() {
		if stale, _ := judge(&f); stale {
			b.Fatal("it is stale")
		}
	}
}
