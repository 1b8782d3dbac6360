package web

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/answer/status"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// cards returns the texts of the cards that need attention.
func cards(body string) (out []string) {
	for _, m := range regexp.MustCompile(`(?s)<li class="card.*?</li>`).FindAllString(body, -1) {
		out = append(out, strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m, " ")), " "))
	}
	return out
}

func wants(t *testing.T, body string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(body, text) {
			t.Errorf("%q is not on the page:\n%s", text, body)
		}
	}
}

// timed is a world whose clock is turned by the test.
func timed(t *testing.T) (*world, *clocktesting.FakeClock) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC))
	return newWorld(t, func(o *Options) { o.Clock = clock }), clock
}

func TestRefusedClientsAreShown(t *testing.T) {
	w, clock := timed(t)
	w.Sync(concat(app("default/web", "10.96.0.80", []string{"10.244.1.1"}), app("staging/batch-old", "10.96.0.81", nil))...)
	refuse := func(n int64) {
		w.Dataplane.Set(func(b *enginetest.Behaviour) {
			b.Connections = map[plan.Key]int64{web: 0, shop: 0}
			b.Refused = map[plan.Key]int64{shop: n}
		})
	}
	refuse(100)
	const card, remedy = "Service staging/batch-old refused: no endpoints", " What to do: give it an endpoint that is ready, or stop its clients"
	if diff := cmp.Diff([]string{card + remedy}, cards(w.get("/").Body.String())); diff != "" {
		t.Errorf("cards without clients (-want +got):\n%s", diff)
	}
	clock.Step(10 * time.Second)
	refuse(105)
	body := w.get("/").Body.String()
	if diff := cmp.Diff([]string{card + " 0.5 refused attempts per second" + remedy}, cards(body)); diff != "" {
		t.Errorf("cards (-want +got):\n%s", diff)
	}
	wants(t, body, `<dt>Refused</dt><dd>0.5</dd><dd class="quiet">attempts per second</dd>`,
		`<td class="number alarm" data-label="refused/s">0.5</td>`, `<td class="number" data-label="refused/s">0</td>`)
	if diff := cmp.Diff([]string{"staging/batch-old"}, listed(w.get("/?show=failing").Body.String())); diff != "" {
		t.Errorf("with problems (-want +got):\n%s", diff)
	}
	wants(t, w.get("/service?namespace=staging&name=batch-old").Body.String(), `data-label="refused/s">0.5</td>`)
}

func TestProblemsAreGroupedByKind(t *testing.T) {
	w := newWorld(t)
	var events []model.Event
	for i := range 150 {
		name := fmt.Sprintf("team/s-%03d", i)
		events = append(events, app(name, fmt.Sprintf("10.96.1.%d", i), []string{"10.244.1.1"}, func(s *model.Service) {
			s.Problems = []model.Problem{{Object: model.ServiceObject(s.Name), Field: fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i%3),
				Reason: fmt.Sprintf(`"10.0.%d.300/24" is not an IP prefix`, i), Remedy: "write a prefix"}}
		})...)
	}
	for _, kind := range []string{"a", "b", "c"} {
		events = append(events, app("zone/"+kind, "10.96.2."+fmt.Sprint(kind[0]), []string{"10.244.1.1"}, func(s *model.Service) {
			s.Problems = []model.Problem{{Object: model.ServiceObject(s.Name), Field: "spec." + kind, Reason: "is odd"}}
		})...)
	}
	w.Sync(events...)
	body := w.get("/").Body.String()
	want := []string{
		`150 × spec.loadBalancerSourceRanges: &#34;…&#34; is not an IP prefix ` +
			`Service team/s-000 spec.loadBalancerSourceRanges[0]: &#34;10.0.0.300/24&#34; is not an IP prefix ` +
			`Service team/s-001 spec.loadBalancerSourceRanges[1]: &#34;10.0.1.300/24&#34; is not an IP prefix ` +
			`Service team/s-002 spec.loadBalancerSourceRanges[2]: &#34;10.0.2.300/24&#34; is not an IP prefix ` +
			`and 147 more What to do: write a prefix`,
		"Service zone/a spec.a: is odd", "Service zone/b spec.b: is odd"}
	if diff := cmp.Diff(want, cards(body)); diff != "" {
		t.Errorf("cards (-want +got):\n%s", diff)
	}
	wants(t, body, `<a href="/problems#group-0">and 147 more</a>`, `<a href="/problems">and 1 more of other kinds</a>`)
	all := w.get("/problems").Body.String()
	if n := len(cards(all)); n != 4 || strings.Count(all, "is not an IP prefix</p>") != 1+150 {
		t.Errorf("the page of all problems has %d cards:\n%s", n, all)
	}
	wants(t, all, `id="group-0"`, "Service zone/c", `<span class="quiet">153</span>`)
}

func TestRemediesThatDifferAreAllShown(t *testing.T) {
	a := problem{Level: status.Fair, Object: "Service a/a", Remedy: "one", kind: "k"}
	b := problem{Level: status.Fair, Object: "Service b/b", Remedy: "another", kind: "k"}
	if g := grouped([]problem{a, b}, 3); len(g) != 1 || g[0].Remedy != "" {
		t.Errorf("groups are %+v", g)
	}
	if g := grouped([]problem{a, a}, 3); len(g) != 1 || g[0].Remedy != "one" {
		t.Errorf("groups are %+v", g)
	}
	if g := grouped([]problem{{Object: "x"}, {Object: "y"}}, 3); len(g) != 2 {
		t.Errorf("problems without a kind are grouped: %+v", g)
	}
}

// A Service whose slice is wrong has a problem like one that is wrong itself.
func TestProblemsOfSlicesAreThoseOfTheirService(t *testing.T) {
	w := newWorld(t)
	s := enginetest.Service("data/loopback", "10.96.0.82")
	w.Sync(append(app("default/web", "10.96.0.80", []string{"10.244.1.1"}), s, enginetest.Slice(s.Service, "127.0.0.1@node1", "10.244.1.4@node1"))...)
	body := w.get("/?show=failing").Body.String()
	if diff := cmp.Diff([]string{"data/loopback"}, listed(body)); diff != "" {
		t.Errorf("with problems (-want +got):\n%s", diff)
	}
	wants(t, body, `>works</span>`, "EndpointSlice data/loopback-1")
}

func TestLostAddressesAreStruckOut(t *testing.T) {
	w := newWorld(t)
	at := func(s *model.Service) { s.ExternalIPs = []netip.Addr{netip.MustParseAddr("198.51.100.7")} }
	older := func(s *model.Service) { s.Created = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	newer := func(s *model.Service) {
		s.Created = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
		s.Ports[0].NodePort = 30080
	}
	w.Sync(concat(app("default/owner", "10.96.0.80", []string{"10.244.1.1"}, at, older), app("default/thief", "10.96.0.81", []string{"10.244.1.1"}, at, newer))...)
	wants(t, w.get("/").Body.String(),
		`<s class="chip" title="belongs to Service default/owner"><i>external</i> 198.51.100.7:80</s> <span class="quiet">of default/owner</span>`)
	wants(t, w.get("/service?namespace=default&name=thief").Body.String(), `<s><code>198.51.100.7:80/TCP</code></s>`,
		`belongs to Service <a href="/service?name=owner&amp;namespace=default">default/owner</a>`, `<code>10.96.0.81:80/TCP</code>`)
	if body := w.get("/service?namespace=default&name=owner").Body.String(); strings.Contains(body, "<s>") {
		t.Errorf("the owner lost something:\n%s", body)
	}
}

func TestMissingPagesLeadBack(t *testing.T) {
	w := shopWorld(t)
	r := w.get("/nothing")
	if r.Code != 404 {
		t.Errorf("status is %d", r.Code)
	}
	wants(t, r.Body.String(), `<a href="/">Show the Services</a>`, `<link rel="stylesheet"`)
}

func TestOneIsNotPlural(t *testing.T) {
	w := newWorld(t)
	w.Sync(app("default/web", "10.96.0.80", []string{"10.244.1.1"})...)
	wants(t, w.get("/").Body.String(), "in 1 slice<")
	wants(t, w.get("/service?namespace=default&name=web").Body.String(), "1 endpoint, 1 here")
}

// What Services have in common is said once.
func TestBrokenServicesShareACard(t *testing.T) {
	w := newWorld(t)
	none := enginetest.Service("default/none", "10.96.0.82")
	w.Sync(concat(app("default/a", "10.96.0.80", nil), app("default/b", "10.96.0.81", nil), []model.Event{none})...)
	want := []string{"3 × refused: the Service has no endpoint that can be used Service default/a no endpoints Service default/b no endpoints " +
		"Service default/none no EndpointSlice What to do: give it an endpoint that is ready, or stop its clients"}
	if diff := cmp.Diff(want, cards(w.get("/").Body.String())); diff != "" {
		t.Errorf("cards (-want +got):\n%s", diff)
	}
}

func TestEndpointsThatDoNotAnswerAreShown(t *testing.T) {
	w := newWorld(t)
	w.answers = silent(noon, 67, "10.244.1.1")
	w.Sync(app("default/web", "10.96.0.80", []string{"10.244.1.1", "10.244.2.1"})...)
	const why = "1 of 2 endpoints does not answer, 67 failed attempts since 12:00:00 UTC"
	body := w.get("/").Body.String()
	if got := cards(body); len(got) != 1 || !strings.HasPrefix(got[0], "Service default/web works for some: "+why+" What to do: ") {
		t.Errorf("cards are %q", got)
	}
	wants(t, body, `>works for some</span> <span class="quiet why">`+why)
	wants(t, w.get("/service?namespace=default&name=web").Body.String(), why,
		`<span class="state bad">does not answer</span> <span class="quiet why">67 failed attempts since 12:00:00 UTC</span>`)
}
