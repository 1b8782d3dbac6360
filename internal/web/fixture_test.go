package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/explain"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/status"
	"sluice/internal/testkit"
)

// kernel is a dataplane that does what a test tells it to.
type kernel struct {
	mu       sync.Mutex
	counters map[plan.Key]int64
	refused  map[netip.Addr]error
	broken   error
	hold     chan struct{} // a commit waits for it to be closed
	progress dataplane.Progress
	report   func(dataplane.Progress)
}

func (k *kernel) Reconcile(ctx context.Context, d *plan.Desired) dataplane.Result {
	return k.commit(ctx, func(yield func(plan.Key) bool) {
		for key := range d.Frontends {
			if !yield(key) {
				return
			}
		}
	})
}

func (k *kernel) Apply(ctx context.Context, c *plan.Change) dataplane.Result {
	return k.commit(ctx, func(yield func(plan.Key) bool) {
		for _, f := range c.Set {
			if !yield(f.Key) {
				return
			}
		}
	})
}

func (k *kernel) commit(ctx context.Context, keys func(func(plan.Key) bool)) dataplane.Result {
	k.mu.Lock()
	hold, progress, report := k.hold, k.progress, k.report
	k.mu.Unlock()
	if report != nil {
		report(progress)
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return dataplane.Result{Err: ctx.Err()}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r := dataplane.Result{Err: k.broken, Failed: map[plan.Key]error{}, Transactions: 1}
	for key := range keys {
		r.Elements++
		if err := k.refused[key.Addr]; err != nil {
			r.Failed[key] = err
		}
	}
	return r
}

func (k *kernel) Verify(context.Context) (bool, error)    { return true, nil }
func (k *kernel) Repair(context.Context) dataplane.Result { return dataplane.Result{} }
func (k *kernel) Disturbed() <-chan struct{}              { return nil }
func (k *kernel) Close() error                            { return nil }

func (k *kernel) Traffic(_ context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.UnmatchedTraffic, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, n := range k.counters {
		each(key, dataplane.Traffic{Connections: n})
	}
	return dataplane.UnmatchedTraffic{}, nil
}

// OnProgress is for dataplane.ProgressReporter.
func (k *kernel) OnProgress(report func(dataplane.Progress)) { k.report = report }

// do changes what the kernel does.
func (k *kernel) do(change func(*kernel)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k)
}

// world is a proxy with a page, without a kernel.
type world struct {
	t      testing.TB
	kernel *kernel
	engine *engine.Engine
	source model.Sink
	page   *Page

	advisories []model.Problem
}

// newWorld starts a proxy that waits for its source. Edits change the page.
func newWorld(t testing.TB, edits ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, kernel: &kernel{counters: map[plan.Key]int64{}, refused: map[netip.Addr]error{}}}
	config := plan.Config{NodeName: "node1", DetectLocal: plan.DetectClusterCIDR, MasqueradeBit: 14,
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	history := &status.History{}
	w.engine = engine.New(engine.Options{Planner: plan.New(config), Dataplane: w.kernel, Logger: logr.Discard()})
	w.engine.Observe(history)
	w.source = w.engine.AddSource("test")
	reporter := status.New(status.Options{
		Engine: w.engine, History: history, Healthy: func() bool { return true }, Leaving: func() string { return "" },
		Version: "v1.2.3", Mode: "nftables", ModeReason: "nobody chose it", Node: "node1", Clock: clock.RealClock{},
		Advisories: func() []model.Problem { return w.advisories },
	})
	explainer := explain.New(explain.Options{Engine: w.engine, Mode: "nftables", Node: "node1"})
	o := Options{Engine: w.engine, Status: reporter.Report, Explain: explainer.Explain, Traffic: w.kernel.Traffic, Logger: logr.Discard()}
	for _, edit := range edits {
		edit(&o)
	}
	w.page = New(o)
	w.run()
	return w
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.engine.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the engine ended with %v", err)
		}
	})
}

// sync hands over what there is at the start and waits until it is programmed.
func (w *world) sync(events ...model.Event) {
	w.t.Helper()
	w.source.Update(events...)
	w.source.Synced()
	w.settle()
}

// update hands over changes and waits until they are programmed.
func (w *world) update(events ...model.Event) {
	w.t.Helper()
	w.source.Update(events...)
	w.settle()
}

func (w *world) settle() {
	w.t.Helper()
	testkit.Eventually(w.t, func() error {
		if s := w.engine.Status(); s.Commits == 0 || !s.PendingSince.IsZero() {
			return fmt.Errorf("status is %+v", s)
		}
		return nil
	})
}

// get asks for a page.
func (w *world) get(target string) *httptest.ResponseRecorder {
	r := httptest.NewRecorder()
	w.page.ServeHTTP(r, httptest.NewRequest(http.MethodGet, target, nil))
	return r
}

// serve serves the page as the metrics server does, and returns its address.
func (w *world) serve() string {
	s := httptest.NewServer(w.page)
	w.t.Cleanup(s.Close)
	return s.URL
}

// app is a Service with a ClusterIP, port 80 called http, and ready endpoints,
// changed by edits.
func app(name, ip string, endpoints []string, edits ...func(*model.Service)) []model.Event {
	namespace, name, _ := strings.Cut(name, "/")
	s := &model.Service{
		Name:       model.Name{Namespace: namespace, Name: name},
		ClusterIPs: []netip.Addr{netip.MustParseAddr(ip)},
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	for _, edit := range edits {
		edit(s)
	}
	return []model.Event{model.SetService{Service: s}, slice(s, endpoints)}
}

func slice(s *model.Service, endpoints []string) model.Event {
	out := &model.Slice{Name: model.Name{Namespace: s.Name.Namespace, Name: s.Name.Name + "-1"}, Service: s.Name.Name, Family: model.IPv4}
	for _, p := range s.Ports {
		out.Ports = append(out.Ports, model.SlicePort{Name: p.Name, Protocol: p.Protocol, Port: 8080})
	}
	for i, e := range endpoints {
		node := "node1"
		if i%2 == 1 {
			node = "node2"
		}
		out.Endpoints = append(out.Endpoints, model.Endpoint{Addr: netip.MustParseAddr(e), Node: node, Conditions: model.Ready | model.Serving})
	}
	return model.SetSlice{Slice: out}
}

func key(ip string) plan.Key {
	return plan.Key{Addr: netip.MustParseAddr(ip), Port: 80, Protocol: model.TCP}
}

// many are n Services in ten namespaces, each with two endpoints.
func many(n int) []model.Event {
	out := make([]model.Event, 0, 2*n)
	for i := range n {
		at := func(net byte) string { return netip.AddrFrom4([4]byte{10, net, byte(i >> 8), byte(i)}).String() }
		out = append(out, app(fmt.Sprintf("team-%d/service-%05d", i%10, i), at(96), []string{at(244), at(245)})...)
	}
	return out
}
