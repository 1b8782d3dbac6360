//go:build linux

package telemetry

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

var (
	web  = model.Name{Namespace: "default", Name: "web"}
	mail = model.Name{Namespace: "post", Name: "mail"}
	// morning is when tests begin.
	morning = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
)

// world is a fake Engine and its metrics.
type world struct {
	t        *testing.T
	clock    *clocktesting.FakeClock
	registry metrics.KubeRegistry
	metrics  *Metrics
	updater  *Updater

	told enginetest.Told

	mu       sync.Mutex
	status   engine.Summary
	desired  plan.Desired
	failures []engine.Failure
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t:        t,
		clock:    clocktesting.NewFakeClock(morning),
		registry: metrics.NewKubeRegistry(),
		told:     enginetest.Told{},
		desired: plan.Desired{
			Frontends: map[plan.Key]*plan.Frontend{}, Problems: map[model.Object][]model.Problem{}, EventsOn: map[model.Object]struct{}{},
		},
	}
	var err error
	if w.metrics, err = NewMetrics(w.registry, nftables.Mode, model.Families[:]); err != nil {
		t.Fatal(err)
	}
	w.updater = NewUpdater(UpdaterOptions{
		Connected: func() bool { return true },
		Metrics:   w.metrics, Clock: w.clock, Engine: w,
	})
	return w
}

func (w *world) Status() engine.Summary { return w.status }

func (w *world) Failures() []engine.Failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failures
}

func (w *world) Inspect(read func(engine.View)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	read(engine.View{Desired: &w.desired})
}

// commit reports a commit of a duration.
func (w *world) commit(took time.Duration, change *plan.Change, result dataplane.Result) {
	w.committed(took, engine.Commit{Kind: engine.Apply, Change: change, Result: result})
}

func (w *world) reconcile(took time.Duration, change *plan.Change) {
	w.status.Reconciles++
	w.committed(took, engine.Commit{Kind: engine.Reconcile, Change: change})
}

func (w *world) committed(took time.Duration, c engine.Commit) {
	c.Begin, c.End = w.clock.Now().Add(-took), w.clock.Now()
	if c.Kind != engine.None {
		w.status.Commits++
		w.status.LastCommit = c.End
	}
	w.updater.Committed(w.told.Complete(&c))
}

// sink counts events.
type sink struct {
	events int
	synced bool
}

func (s *sink) Update(events ...model.Event) { s.events += len(events) }
func (s *sink) Synced()                      { s.synced = true }

// values returns the samples of a metric after a scrape, as labels and value, or for a
// histogram as its count and sum.
func (w *world) values(name string) []string {
	w.t.Helper()
	w.updater.Refresh()
	return values(w.t, w.registry, name)
}

func values(t *testing.T, from metrics.Gatherer, name string) []string {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			value := fmt.Sprint(m.GetGauge().GetValue() + m.GetCounter().GetValue())
			if h := m.GetHistogram(); h != nil {
				value = fmt.Sprintf("%d of %g", h.GetSampleCount(), h.GetSampleSum())
			}
			out = append(out, strings.TrimSpace(strings.Join(labels, " ")+" "+value))
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) want(name string, want ...string) {
	w.t.Helper()
	if want == nil {
		want = []string{}
	}
	if diff := cmp.Diff(want, w.values(name)); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// frontend is a ClusterIP of a Service with port http, changed by edits.
func frontend(addr string, service model.Name, edits ...func(*plan.Frontend)) *plan.Frontend {
	f := &plan.Frontend{Key: keyOf(addr), Service: service, Port: "http"}
	for _, edit := range edits {
		edit(f)
	}
	return f
}

func keyOf(addr string) plan.Key {
	return plan.Key{Addr: netip.MustParseAddr(addr), Port: 80, Protocol: model.TCP}
}

// internalGap and externalGap make a frontend of policy Local without a local
// endpoint.
func internalGap(f *plan.Frontend) {
	f.Route = plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}
}
func externalGap(f *plan.Frontend) {
	f.Kind, f.Outside = plan.ExternalIP, &plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}}
	f.Route.Endpoints = elsewhere
}

var elsewhere = []plan.Endpoint{{AddrPort: netip.MustParseAddrPort("10.1.0.1:8080")}}

func set(frontends ...*plan.Frontend) *plan.Change { return &plan.Change{Set: frontends} }

func removed(addrs ...string) *plan.Change {
	c := &plan.Change{}
	for _, addr := range addrs {
		c.Removed = append(c.Removed, keyOf(addr))
	}
	return c
}
