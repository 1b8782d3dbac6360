package web

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestListIsFilteredAndSorted(t *testing.T) {
	w, clock := timed(t)
	w.Sync(concat(
		app("default/web", "10.96.0.80", []string{"10.244.1.1", "10.244.2.1"}, func(s *model.Service) { s.Ports[0].NodePort = 30080 }),
		app("default/shop", "10.96.0.81", []string{"10.244.1.2"}),
		app("default/broken", "10.96.0.82", []string{"10.244.1.3"}, func(s *model.Service) {
			s.Problems = []model.Problem{{Object: model.Object{Kind: "Service", Namespace: "default", Name: "broken"}, Reason: "is odd"}}
		}),
		app("other/none", "10.96.0.83", nil),
	)...)
	count := func(n int64) {
		w.Dataplane.Set(func(b *enginetest.Behaviour) {
			b.Connections = map[plan.Key]int64{shop: 2 * n, web: n, key("10.96.0.83"): 0}
			b.Refused = map[plan.Key]int64{key("10.96.0.83"): n}
		})
	}
	count(0)
	w.get("/")
	clock.Step(10 * time.Second)
	count(10)
	for link, want := range map[string][]string{
		"/":                                {"other/none", "default/broken", "default/shop", "default/web"},
		"/?order=name":                     {"default/broken", "default/shop", "default/web", "other/none"},
		"/?namespace=other":                {"other/none"},
		"/?namespace=oth":                  {},
		"/?kind=nodeport":                  {"default/web"},
		"/?kind=externalip":                {},
		"/?kind=nonsense&order=nonsense":   {"other/none", "default/broken", "default/shop", "default/web"},
		"/?namespace=default&order=rate":   {"default/shop", "default/web", "default/broken"},
		"/?order=refused":                  {"other/none", "default/broken", "default/shop", "default/web"},
		"/?order=endpoints":                {"default/web", "default/broken", "default/shop", "other/none"},
		"/?kind=clusterip&q=10.96.0.81":    {"default/shop"},
		"/?namespace=default&show=failing": {"default/broken"},
	} {
		body := w.get(link).Body.String()
		if diff := cmp.Diff(want, listed(body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", link, diff)
		}
	}
	body := w.get("/?namespace=default&kind=nodeport&order=rate").Body.String()
	wants(t, body, `<option value="default" selected>default</option><option value="other">other</option>`,
		`<option value="nodeport" selected>NodePort</option>`, `aria-sort="descending"><a href="/?kind=nodeport&amp;namespace=default&amp;order=rate">New conn./s</a>`)
	// A namespace that is gone stays selected.
	wants(t, w.get("/?namespace=gone").Body.String(), `<option value="gone" selected>gone</option>`, "No Service matches (4 in total).")
}

// What is broken is first, the worst of all, then what is not right, then what has had most
// traffic in 15 minutes. What policy Local leaves to other nodes is not broken.
func TestBrokenServicesAreFirst(t *testing.T) {
	w := newWorld(t)
	w.Dataplane.Set(func(b *enginetest.Behaviour) { b.Refuse[netip.MustParseAddr("10.96.0.6")] = errors.New("no room") })
	local := func(s *model.Service) { s.Ports[0].NodePort, s.ExternalPolicy = 30080, model.PolicyLocal }
	odd := func(s *model.Service) {
		s.Problems = []model.Problem{{Object: model.Object{Kind: "Service", Namespace: "default", Name: "odd"}, Reason: "is odd"}}
	}
	elsewhere := enginetest.Service("default/elsewhere", "10.96.0.4", local)
	w.Sync(concat(
		app("default/a", "10.96.0.1", []string{"10.244.1.1"}), app("default/busy", "10.96.0.2", []string{"10.244.1.1"}),
		app("default/empty", "10.96.0.3", nil), []model.Event{elsewhere, enginetest.Slice(elsewhere.Service, "10.244.2.1@node2")},
		app("default/odd", "10.96.0.5", []string{"10.244.1.1"}, odd), app("default/unprogrammed", "10.96.0.6", []string{"10.244.1.1"}),
	)...)
	w.page.recorder.record(noon, one(model.Name{Namespace: "default", Name: "busy"}, perSecond5))
	want := []string{"default/unprogrammed", "default/empty", "default/odd", "default/busy", "default/a", "default/elsewhere"}
	body := w.get("/").Body.String()
	if diff := cmp.Diff(want, listed(body)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	wants(t, body, `>refused</span> <span class="quiet why">no endpoints</span>`, `>works for some</span> <span class="quiet why">not for clients outside: no endpoint on this node</span>`,
		`<dt>Services</dt><dd>6</dd><dd class="alarm">2 broken</dd>`)
	if diff := cmp.Diff(want[:3], listed(w.get("/?show=failing").Body.String())); diff != "" {
		t.Errorf("with problems (-want +got):\n%s", diff)
	}
	for _, card := range cards(body) {
		if strings.Contains(card, "elsewhere") {
			t.Errorf("policy Local needs attention: %s", card)
		}
	}
}

// Visitors look for the client that fails.
func TestClientThatFailsIsChosen(t *testing.T) {
	w := newWorld(t)
	local := func(s *model.Service) { s.Ports[0].NodePort, s.ExternalPolicy = 30080, model.PolicyLocal }
	elsewhere := enginetest.Service("default/elsewhere", "10.96.0.4", local)
	w.Sync(concat([]model.Event{elsewhere, enginetest.Slice(elsewhere.Service, "10.244.2.1@node2")},
		app("default/web", "10.96.0.1", []string{"10.244.1.1"}), app("default/none", "10.96.0.2", nil))...)
	for name, want := range map[string]string{"elsewhere": "outside", "web": "a pod", "none": "a pod", "elsewhere&from=node": "this node"} {
		wants(t, w.get("/service?namespace=default&name="+name).Body.String(), `aria-current="true">from `+want+"</a>")
	}
	body := w.get("/service?namespace=default&name=elsewhere").Body.String()
	if strings.Contains(body, `class="state good">programmed`) {
		t.Errorf("what was programmed is good news:\n%s", body)
	}
	wants(t, body, `>works for some</span>`, "programmed for ")
}

// Verdicts are remembered, but not on what changed or is broken, and not for long.
func TestVerdictsAreUpToDate(t *testing.T) {
	w, clock := timed(t)
	w.Sync(concat(app("default/a", "10.96.0.1", []string{"10.244.1.1"}), app("default/b", "10.96.0.2", []string{"10.244.1.2"}))...)
	want := func(what string, broken ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, broken...), listed(w.get("/?show=failing").Body.String())); diff != "" {
			t.Errorf("broken after %s (-want +got):\n%s", what, diff)
		}
	}
	want("the start")
	w.Change(app("default/b", "10.96.0.2", nil)...)
	want("a change", "default/b")
	w.Change(app("default/b", "10.96.0.2", []string{"10.244.1.2"})...)
	want("the way back")
	w.answers = silent(noon, 3, "10.244.1.1")
	clock.Step(averaged)
	want("failed connections", "default/a")
	w.answers = nil
	want("an answer")
}
