package web

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/answer/services"
	"sluice/internal/answer/status"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/observe/history"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

var (
	noon       = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	webName    = model.Name{Namespace: "default", Name: "web"}
	shopName   = model.Name{Namespace: "default", Name: "shop"}
	perSecond5 = services.Rates{Connections: 5}
)

func one(name model.Name, r services.Rates) map[model.Name]services.Rates {
	return map[model.Name]services.Rates{name: r}
}

func TestRecorderKeepsFifteenMinutes(t *testing.T) {
	var r recorder
	r.record(noon, one(webName, services.Rates{Connections: 1, Refused: services.Refusals{plan.SourceRanges: 2}}))
	r.record(noon.Add(step), nil)
	r.record(noon.Add(3*step), one(webName, perSecond5)) // a step late
	got, ok := r.of(webName)
	if diff := cmp.Diff([]float32{1, 0, 5, 5}, got.connections); diff != "" || !ok {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float32{2, 0, 0, 0}, got.refused); diff != "" || !got.end.Equal(noon.Add(4*step)) {
		t.Errorf("until %v, refused (-want +got):\n%s", got.end, diff)
	}
	for i := range steps {
		r.record(noon.Add(time.Duration(4+i)*step), one(shopName, perSecond5))
	}
	if _, ok := r.of(webName); ok {
		t.Error("a Service without traffic for 15 minutes is still there")
	}
	if got, _ := r.of(shopName); len(got.connections) != steps {
		t.Errorf("%d steps are kept", len(got.connections))
	}
}

func TestRecorderStartsAgainAfterAGap(t *testing.T) {
	var r recorder
	r.record(noon, one(webName, perSecond5))
	for _, at := range []time.Time{noon.Add(time.Hour), noon.Add(-time.Hour)} { // the clock may be set back
		r.record(at, one(shopName, perSecond5))
		_, before := r.of(webName)
		if got, _ := r.of(shopName); before || len(got.connections) != 1 {
			t.Errorf("at %v there are %v of shop, and web is there: %t", at, got.connections, before)
		}
	}
}

func TestRecorderPrefersBusyServices(t *testing.T) {
	var r recorder
	name := func(i int) model.Name { return model.Name{Namespace: "a", Name: fmt.Sprintf("%04d", i)} }
	traffic := map[model.Name]services.Rates{}
	for i := range maxRecorded + 100 {
		traffic[name(i)] = services.Rates{Connections: float64(1 + i)}
	}
	r.record(noon, traffic)
	has := func(n model.Name) bool { _, ok := r.of(n); return ok }
	if len(r.series) != maxRecorded || has(name(99)) || !has(name(100)) {
		t.Errorf("%d are recorded, the weakest too: %t, the next: %t", len(r.series), has(name(99)), has(name(100)))
	}
	traffic[webName], traffic[shopName] = services.Rates{Connections: 1e6}, services.Rates{Connections: 0.001}
	r.record(noon.Add(step), traffic)
	if len(r.series) != maxRecorded || !has(webName) || has(shopName) || has(name(100)) {
		t.Errorf("%d are recorded, a busy one: %t, a weak one: %t, the weakest before: %t", len(r.series), has(webName), has(shopName), has(name(100)))
	}
}

func TestTrafficIsRecordedWhileNobodyLooks(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	w := newWorld(t, func(o *Options) {
		o.Clock = clock
		o.Traffic = func(_ context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.UnmatchedTraffic, error) {
			each(web, dataplane.Traffic{Connections: 4 * int64(clock.Since(noon).Seconds())})
			return dataplane.UnmatchedTraffic{}, nil
		}
	})
	w.Sync(app("default/web", "10.96.0.80", []string{"10.244.1.1"})...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.page.Run(ctx) }()
	testkit.Eventually(t, func() error {
		clock.Step(step)
		if got, _ := w.page.recorder.of(webName); len(got.connections) < 4 || got.connections[0] != 4 || got.connections[3] != 4 {
			return fmt.Errorf("connections are %v", got.connections)
		}
		return nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	wants(t, w.get("/").Body.String(), `<path class="line" d="M`, "Connections and refusals in 15 minutes", "5.0 per second")
	wants(t, w.get("/service?namespace=default&name=web").Body.String(), `id="graph"`, "5.0 per second")
}

func TestGraphDrawsValuesAndChanges(t *testing.T) {
	of := recording{end: noon, connections: []float32{0, 0, 5, 10, 10}, refused: []float32{0, 2, 0, 0, 0}}
	g := newGraph(of, []history.Event{
		{At: noon.Add(-9 * time.Minute), Kind: history.EndpointAdded, Endpoint: "10.244.1.9:80"},
		{At: noon.Add(-3 * time.Minute), Kind: history.Refused, Packets: 5},
		{At: noon.Add(-16 * time.Minute), Kind: history.EndpointRemoved},
	})
	if g.Line != "M85 100H87V50H88V0H90" || g.Refused != "M85 100H86V80H87V100H90" || g.Area != g.Line+"V100H85Z" || g.Top != "10 per second" {
		t.Errorf("graph is %+v", g)
	}
	if diff := cmp.Diff([]moment{{X: 40, Text: "11:51:00 endpoint 10.244.1.9:80 added"}}, g.Changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	few := newGraph(recording{end: noon, connections: []float32{100, 100}, refused: []float32{0, 0.1}}, nil)
	if few.Refused != "M88 100H89V95H90" {
		t.Errorf("few refusals are drawn as %s", few.Refused)
	}
	small := spark(of) // of 3 steps each, the last at the right edge
	if small.Line != "M28 20H29V0H30" || small.Refused == "" {
		t.Errorf("small graph is %+v", small)
	}
}

// The graph of the node has a mark for each step with changes.
func TestGraphOfTheNode(t *testing.T) {
	var r recorder
	if _, ok := r.all(); ok {
		t.Error("there is a recording of nothing")
	}
	r.record(noon, map[model.Name]services.Rates{webName: perSecond5, shopName: {Connections: 1, Refused: services.Refusals{plan.NoEndpoints: 2}}})
	r.record(noon.Add(step), nil)
	of, _ := r.all()
	if diff := cmp.Diff([][]float32{{6, 0}, {2, 0}}, [][]float32{of.connections, of.refused}); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	g := newNodeGraph(of, []status.Change{
		{At: noon.Add(5 * time.Second), Revision: 4}, {At: noon.Add(time.Second), Revision: 3},
		{At: noon.Add(-time.Minute), Revision: 2}, {At: noon.Add(-time.Hour), Revision: 1},
	})
	if len(g.Changes) != 2 || !strings.Contains(g.Changes[0].Text, "revision 4") || !strings.Contains(g.Changes[0].Text, "revision 3") ||
		!strings.Contains(g.Changes[1].Text, "revision 2") {
		t.Errorf("marks are %+v", g.Changes)
	}
}

func TestCeilingOfAGraph(t *testing.T) {
	for in, want := range map[float64]float64{0: 0.1, 0.3: 0.5, 1: 1, 1.01: 2, 4: 5, 7: 10, 99: 100, 100: 100, 3000: 5000} {
		if got := ceiling(in); fmt.Sprintf("%.3g", got) != fmt.Sprintf("%.3g", want) {
			t.Errorf("ceiling of %g is %g, want %g", in, got, want)
		}
	}
}

func TestHistoryIsShown(t *testing.T) {
	w := shopWorld(t)
	w.Change(app("default/web", "10.96.0.80", []string{"10.244.1.1", "10.244.2.55"})...)
	service := w.get("/service?namespace=default&name=web").Body.String()
	wants(t, service, `id="history-title"`, "endpoint 10.244.2.55:8080 added", "endpoint 10.244.2.1:8080 removed", "in the kernel after")
	if strings.Contains(service, "all Services programmed") {
		t.Errorf("the history of a Service tells of the node:\n%s", service)
	}
	node := w.get("/events").Body.String()
	wants(t, node, "all Services programmed", `<a href="/service?name=web&amp;namespace=default">default/web</a>`, "endpoint 10.244.2.55:8080 added")
	if strings.Index(node, "10.244.2.55") > strings.Index(node, "all Services programmed") {
		t.Error("the newest event is not the first")
	}
	if body := w.get("/events?namespace=kube-system").Body.String(); strings.Contains(body, "10.244.2.55") {
		t.Errorf("a namespace has events of another one:\n%s", body)
	}
}

// Refusals that the page counts are events, and those that go on are one, from their beginning.
func TestRefusalsAreEvents(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	w := newWorldAt(t, clock)
	w.Sync(app("default/web", "10.96.0.80", nil)...)
	refuse := func(n int64) {
		w.Dataplane.Set(func(b *enginetest.Behaviour) {
			b.Connections, b.Refused = map[plan.Key]int64{web: 0}, map[plan.Key]int64{web: n}
		})
	}
	refuse(5)
	w.get("/") // clients of long ago
	for range 3 {
		clock.Step(step)
		refuse(5)
		w.get("/events")
	}
	for n := range int64(3) { // from 12:00:30 on
		clock.Step(step)
		refuse(10 * (n + 1))
		w.get("/")
	}
	clock.Step(5 * time.Minute)
	w.get("/events") // nothing since then
	clock.Step(step)
	refuse(31)
	events := w.get("/events").Body.String()
	wants(t, events, "<time>12:00:30</time>", "refused 25 packets in 30s: the Service has no endpoint that can be used", "refused 1 packet in 10s")
	if n := strings.Count(events, "refused "); n != 2 {
		t.Errorf("%d events of refusals:\n%s", n, events)
	}
}

func BenchmarkRecordOf10000Services(b *testing.B) {
	w := newWorld(b)
	w.Sync(many(10000)...)
	traffic := map[plan.Key]services.Rates{}
	w.Engine.Inspect(func(v engine.View) {
		for key := range v.Desired.Frontends {
			traffic[key] = perSecond5
		}
	})
	now := noon
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(step)
		w.page.recorder.record(now, byService(w.Engine.Inspect, traffic))
	}
}
