package perservice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

var (
	web  = model.Name{Namespace: "default", Name: "web"}
	post = model.Name{Namespace: "post", Name: "mail"}
	// morning is when tests begin.
	morning = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
)

// world is a fake kernel and engine for a Collector.
type world struct {
	t         testing.TB
	clock     *clocktesting.FakeClock
	collector *Collector
	traffic   map[plan.Key]dataplane.Traffic
	unmatched dataplane.UnmatchedTraffic
	reads     int
	readErr   error
	state     *model.State
	planner   *plan.Planner
}

func newWorld(t testing.TB, edits ...func(*Options)) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(morning), traffic: map[plan.Key]dataplane.Traffic{},
		state: model.NewState(), planner: plan.New(plan.Config{NodeName: "here"}),
	}
	o := Options{Limit: 1000, Traffic: w.read, Evidence: w.evidence, Clock: w.clock}
	for _, edit := range edits {
		edit(&o)
	}
	w.collector = New(o)
	return w
}

func (w *world) read(_ context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.UnmatchedTraffic, error) {
	w.reads++
	if w.readErr != nil {
		return dataplane.UnmatchedTraffic{}, w.readErr
	}
	for key, t := range w.traffic {
		each(key, t)
	}
	return w.unmatched, nil
}

func (w *world) evidence(names []model.Name) []plan.Evidence {
	out := make([]plan.Evidence, len(names))
	for i, name := range names {
		out[i] = w.planner.Evidence(w.state, name)
	}
	return out
}

// begin makes the first commit, which the counters are based on.
func (w *world) begin(frontends ...*plan.Frontend) {
	w.t.Helper()
	w.commit(&plan.Change{Set: frontends}, nil)
	w.collector.processQueue()
	w.clock.Step(countersAge)
}

// commitFor makes a commit for events.
func (w *world) commitFor(events engine.Events, frontends ...*plan.Frontend) {
	w.collector.Committed(&engine.Commit{Kind: engine.Apply, Change: &plan.Change{Set: frontends}, Events: events, End: w.clock.Now()})
}

func (w *world) commit(change *plan.Change, failed map[plan.Key]error) {
	w.collector.Committed(&engine.Commit{Change: change, Result: dataplane.Result{Failed: failed}, End: w.clock.Now()})
}

func (w *world) set(frontends ...*plan.Frontend) { w.commit(&plan.Change{Set: frontends}, nil) }

func (w *world) remove(addrs ...string) {
	change := &plan.Change{}
	for _, addr := range addrs {
		change.Removed = append(change.Removed, keyOf(addr))
		delete(w.traffic, keyOf(addr))
	}
	w.commit(change, nil)
}

// sees sets what the kernel counts for a frontend.
func (w *world) sees(addr string, connections int64, refused ...int64) {
	t := dataplane.Traffic{Attempts: uint64(connections), Connections: connections}
	for i, n := range refused {
		t.Refused[i] = n
		t.Attempts += uint64(n)
	}
	w.traffic[keyOf(addr)] = t
}

// scrape returns the samples of a metric in a later scrape, without its name.
func (w *world) scrape(metric string) []string {
	w.t.Helper()
	w.clock.Step(countersAge)
	return w.now(metric)
}

func (w *world) now(metric string) []string {
	w.t.Helper()
	var text strings.Builder
	if err := w.collector.Write(&text); err != nil {
		w.t.Fatal(err)
	}
	out := []string{}
	for line := range strings.Lines(text.String()) {
		if rest, ok := strings.CutPrefix(line, metric+"{"); ok {
			out = append(out, strings.TrimSpace(rest))
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) want(metric string, want ...string) {
	w.t.Helper()
	if want == nil {
		want = []string{}
	}
	if diff := cmp.Diff(want, w.scrape(metric)); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", metric, diff)
	}
}

// at is a ClusterIP of a Service with port http.
func at(addr string, service model.Name) *plan.Frontend {
	return &plan.Frontend{Key: keyOf(addr), Service: service, Port: "http"}
}

func keyOf(addr string) plan.Key {
	return plan.Key{Addr: netip.MustParseAddr(addr), Port: 80, Protocol: model.TCP}
}

// many returns the frontends of many Services, two each, which the kernel counts.
func (w *world) many(services int) []*plan.Frontend {
	var out []*plan.Frontend
	for i := range services {
		name := model.Name{Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("service-%d", i)}
		for _, net := range []string{"10", "172"} {
			addr := fmt.Sprintf("%s.%d.%d.%d", net, i>>16, i>>8&255, i&255)
			out = append(out, at(addr, name))
			w.sees(addr, int64(i))
		}
	}
	return out
}

// more makes the kernel count one connection more for every frontend.
func (w *world) more() {
	for _, key := range slices.Collect(maps.Keys(w.traffic)) {
		t := w.traffic[key]
		t.Attempts++
		t.Connections++
		w.traffic[key] = t
	}
}

var errRefused = errors.New("refused")
