package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/answer/explain"
	"sluice/internal/answer/status"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/experiment"
	"sluice/internal/observe/history"
	"sluice/internal/observe/telemetry/perservice"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// world is a proxy with a page, without a kernel.
type world struct {
	*enginetest.Engine
	t    testing.TB
	page *Handler

	history    *history.History
	collector  *perservice.Collector
	advisories []model.Problem
	apiServer  *status.APIServer
	draining   *dataplane.Draining
	relay      *status.Relay
	// answers is what traffic shows of endpoints, nil for nothing.
	answers func(evidence.To) evidence.Report
	// try makes attempts to connect; nil if none is expected.
	try func(experiment.Attempt) *experiment.Result
}

// newWorld starts a proxy that waits for its source. Edits change the page.
func newWorld(t testing.TB, edits ...func(*Options)) *world {
	return newWorldAt(t, clock.RealClock{}, edits...)
}

// newWorldAt does the same with a clock.
func newWorldAt(t testing.TB, c clock.WithDelayedExecution, edits ...func(*Options)) *world {
	t.Helper()
	return newWorldOf(t, c, plan.Config{NodeName: "node1", DetectLocal: plan.DetectClusterCIDR, MasqueradeBit: 14, Algorithms: model.NewAlgorithms(model.RoundRobin),
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}, edits...)
}

// newWorldOf does the same with a configuration.
func newWorldOf(t testing.TB, c clock.WithDelayedExecution, config plan.Config, edits ...func(*Options)) *world {
	t.Helper()
	history := history.New(history.Options{Clock: c, System: config.Limits.System})
	w := &world{t: t, history: history}
	w.collector = perservice.New(perservice.Options{Off: true, Refused: history.Refused, Clock: c,
		Traffic: func(ctx context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.UnmatchedTraffic, error) {
			return w.Dataplane.Traffic(ctx, each)
		}})
	w.Engine = enginetest.NewAt(t, c, config, history)
	reporter := status.New(status.Options{
		Engine: w.Engine.Engine, History: history, Verdict: w.verdict, Verdicts: func() map[model.Name]verdict.Service { return w.verdicts() }, Leaving: func() string { return "" },
		Version: "v1.2.3", Mode: "nftables", ModeReason: "nobody chose it", Node: "node1", Clock: c,
		Draining:   func() *dataplane.Draining { return w.draining },
		Relay:      func() *status.Relay { return w.relay },
		Advisories: func() []model.Problem { return w.advisories }, APIServer: func() *status.APIServer { return w.apiServer },
	})
	w.Observe(w.collector)
	explainer := explain.New(explain.Options{Engine: w.Engine.Engine, Judge: w.judge, Mode: "nftables", Node: "node1", Clock: c,
		Try: func(_ context.Context, a experiment.Attempt) *experiment.Result { return w.try(a) }})
	o := Options{Engine: w.Engine.Engine, Judge: w.judge, Status: reporter.Report, Explain: explainer.Explain, Traffic: w.collector.Read, Events: w.history.Events, Logger: logr.Discard(), Clock: c}
	for _, edit := range edits {
		edit(&o)
	}
	w.page = New(o)
	w.Start()
	return w
}

func (w *world) judge(v engine.View) *verdict.Judge {
	return &verdict.Judge{View: v, Phase: w.Engine.Frontend, Answers: w.answers}
}

func (w *world) verdict() verdict.Proxy {
	f := verdict.Facts{Summary: w.Engine.Status(), Now: time.Now()}
	if s := w.apiServer; s != nil && s.Error != "" {
		f.Source = verdict.Source{Away: s.Away(time.Now()), Since: s.Since}
	}
	return verdict.OfProxy(f)
}

func (w *world) verdicts() map[model.Name]verdict.Service { return verdict.All(w.Engine, w.judge) }

// get asks for a page.
func (w *world) get(target string) *httptest.ResponseRecorder {
	r := httptest.NewRecorder()
	w.page.ServeHTTP(r, httptest.NewRequest(http.MethodGet, target, nil))
	return r
}

// post posts a form, with further header fields.
func (w *world) post(target string, form url.Values, header map[string]string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, target, strings.NewReader(form.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for name, value := range header {
		request.Header.Set(name, value)
	}
	r := httptest.NewRecorder()
	w.page.ServeHTTP(r, request)
	return r
}

// serve serves the page as the metrics server does, and returns its address.
func (w *world) serve() string {
	s := httptest.NewServer(w.page)
	w.t.Cleanup(s.Close)
	return s.URL
}

// app is a Service with a ClusterIP, port 80 called http, and ready endpoints on this
// node and another in turn, changed by edits.
func app(name, ip string, endpoints []string, edits ...func(*model.Service)) []model.Event {
	s := enginetest.Service(name, ip, edits...)
	var at []string
	for i, e := range endpoints {
		at = append(at, fmt.Sprintf("%s@node%d", e, i%2+1))
	}
	return []model.Event{s, enginetest.Slice(s.Service, at...)}
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

// silent is what traffic shows if some endpoints do not answer.
func silent(since time.Time, failed uint64, addrs ...string) func(evidence.To) evidence.Report {
	return func(to evidence.To) evidence.Report {
		if !slices.Contains(addrs, to.Addr().String()) {
			return evidence.Report{}
		}
		return evidence.Report{State: evidence.Silent, Failed: failed, Since: since}
	}
}
