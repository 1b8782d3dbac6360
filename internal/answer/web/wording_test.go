package web

import (
	"errors"
	"html"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/answer/diff"
	"sluice/internal/answer/explain"
	"sluice/internal/answer/status"
	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// outlets are what people read about the proxy.
type outlets struct{ explain, diff, status, page string }

// read returns the texts of all outlets about Service default/web.
func read(t *testing.T, w *world, from string) outlets {
	t.Helper()
	var out [3]strings.Builder
	reply, err := w.page.Explain(t.Context(), explain.Question{To: "default/web", From: from})
	if err != nil {
		t.Fatal(err)
	}
	var report *diff.Report
	w.Inspect(func(v engine.View) { report = diff.Compare(&plan.Desired{}, v.Desired) })
	if err := errors.Join(explain.Write(&out[0], reply), diff.Write(&out[1], report), status.Write(&out[2], w.page.Status())); err != nil {
		t.Fatal(err)
	}
	page := w.get("/").Body.String() + w.get("/service?namespace=default&name=web&from="+from).Body.String()
	// Answers of explain that the page quotes do not count.
	for strings.Contains(page, "<article") {
		before, rest, _ := strings.Cut(page, "<article")
		_, after, _ := strings.Cut(rest, "</article>")
		page = before + after
	}
	return outlets{out[0].String(), out[1].String(), out[2].String(), html.UnescapeString(page)}
}

// TestOneWording checks that outlets describe the same thing by the same sentence.
func TestOneWording(t *testing.T) {
	local := func(s *model.Service) {
		s.LoadBalancerIPs, s.ExternalPolicy = []netip.Addr{netip.MustParseAddr("198.51.100.1")}, model.PolicyLocal
	}
	problem := model.Problem{Object: model.Object{Kind: "Service", Namespace: "default", Name: "web"}, Field: "spec.x", Reason: "is odd", Remedy: "make it even"}
	wrong := func(s *model.Service) { s.Problems = []model.Problem{problem} }
	served := app("default/web", "10.96.0.1", []string{"10.244.1.1"})
	elsewhere := []model.Event{enginetest.Service("default/web", "10.96.0.1", local),
		enginetest.Slice(enginetest.Service("default/web", "10.96.0.1").Service, "10.244.2.1@node2")}
	turns := func(s *model.Service) { s.Algorithm = model.RoundRobin }
	weight := uint16(30)
	canary := enginetest.Slice(enginetest.Service("default/web", "10.96.0.1").Service, "10.244.2.1@node2")
	canary.Name.Name, canary.Weight = "web-canary", &weight
	weighed := append(app("default/web", "10.96.0.1", []string{"10.244.1.1"}, turns), canary)
	busy := func(s *model.Service) { s.Algorithm = model.LeastConnections }
	away := &status.APIServer{Since: time.Now().Add(-90 * time.Minute), Error: "connection refused"}
	tests := []struct {
		name     string
		in       []model.Event
		behave   func(*enginetest.Behaviour)
		api      *status.APIServer
		from     string
		sentence string
		by       []string
	}{
		{name: "no endpoint", in: app("default/web", "10.96.0.1", nil), sentence: plan.NoEndpoints.Text(), by: []string{"explain", "diff", "page"}},
		{name: "no local endpoint", in: elsewhere, from: "outside", sentence: plan.NoLocalEndpoints.Text(), by: []string{"explain", "diff", "page"}},
		{name: "its verdict", in: elsewhere, from: "outside", sentence: plan.Drop.Text() + ": " + plan.NoLocalEndpoints.Text(), by: []string{"diff", "page"}},
		{name: "masquerade", in: served, sentence: plan.MasqueradeOffCluster.Text(), by: []string{"diff", "page"}},
		{name: "why masqueraded", in: served, from: "node",
			sentence: plan.ClientNotPod.Text(), by: []string{"explain", "page"}},
		{name: "how pods are recognised", in: served,
			sentence: plan.Detector{Sources: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}.Text(), by: []string{"explain", "diff"}},
		{name: "the choice", in: weighed, sentence: "one after the other, by weight (round-robin)", by: []string{"explain", "page"}},
		{name: "the algorithm", in: weighed, sentence: "round-robin", by: []string{"explain", "diff", "page"}},
		{name: "a weight", in: weighed, sentence: "weight 30", by: []string{"explain", "diff"}},
		{name: "an algorithm that the mode lacks", in: app("default/web", "10.96.0.1", []string{"10.244.1.1"}, busy),
			sentence: "least-connections is not available in the proxy mode of this node; random is used", by: []string{"explain", "diff", "status", "page"}},
		{name: "a problem", in: app("default/web", "10.96.0.1", []string{"10.244.1.1"}, wrong),
			sentence: problem.What(), by: []string{"explain", "diff", "status", "page"}},
		{name: "its remedy", in: app("default/web", "10.96.0.1", []string{"10.244.1.1"}, wrong),
			sentence: problem.Remedy, by: []string{"explain", "diff", "status", "page"}},
		{name: "a refused frontend", in: served,
			behave:   func(b *enginetest.Behaviour) { b.Refuse[netip.MustParseAddr("10.96.0.1")] = errors.New("no room") },
			sentence: "tried 1 time in ", by: []string{"explain", "status", "page"}},
		{name: "the kernel refuses some", in: served,
			behave:   func(b *enginetest.Behaviour) { b.Refuse[netip.MustParseAddr("10.96.0.1")] = errors.New("no room") },
			sentence: "The kernel refused 1 frontend. All others work.", by: []string{"status", "page"}},
		{name: "the API server is away", in: served, api: away,
			sentence: "API server has not been reachable for 1h3", by: []string{"status", "page"}},
		{name: "what is known without the API server", in: served, api: away,
			sentence: ": connection refused; what was programmed before stays in force", by: []string{"status", "page"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.apiServer = tt.api
			if tt.behave != nil {
				w.Dataplane.Set(tt.behave)
			}
			w.Attempt(tt.in...)
			o := read(t, w, tt.from)
			texts := map[string]string{"explain": o.explain, "diff": o.diff, "status": o.status, "page": o.page}
			for _, name := range tt.by {
				if !strings.Contains(texts[name], tt.sentence) {
					t.Errorf("%s does not say %q:\n%s", name, tt.sentence, texts[name])
				}
			}
		})
	}
}
