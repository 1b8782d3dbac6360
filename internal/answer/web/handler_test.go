package web

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/answer/explain"
	"sluice/internal/answer/status"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/testkit"
)

// listed returns the Services in the list of a page.
func listed(body string) []string {
	out := []string{}
	for _, m := range regexp.MustCompile(`<tr id="row-([^"]+)">`).FindAllStringSubmatch(body, -1) {
		out = append(out, m[1])
	}
	return out
}

func shopWorld(t *testing.T) *world {
	w := newWorld(t)
	w.Sync(concat(
		app("default/web", "10.96.0.80", []string{"10.244.1.1", "10.244.2.1"}, func(s *model.Service) {
			s.Ports[0].NodePort = 30080
			s.ExternalIPs = []netip.Addr{netip.MustParseAddr("198.51.100.7")}
		}),
		app("default/shop", "10.96.0.81", []string{"10.244.1.2"}, func(s *model.Service) { s.Ports[0].Port = 8443 }),
		app("kube-system/dns", "10.96.0.10", []string{"10.244.1.3"}, func(s *model.Service) {
			s.Ports = []model.ServicePort{{Name: "dns", Protocol: model.UDP, Port: 53}}
		}),
		app("idle/nothing", "10.96.0.99", nil),
	)...)
	return w
}

func concat(lists ...[]model.Event) (out []model.Event) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

func TestSearch(t *testing.T) {
	w := shopWorld(t)
	tests := []struct {
		name, in string
		want     []string
	}{
		{"nothing asked", "/", []string{"idle/nothing", "default/shop", "default/web", "kube-system/dns"}},
		{"by name", "/?order=name", []string{"default/shop", "default/web", "idle/nothing", "kube-system/dns"}},
		{"name", "/?q=we", []string{"default/web"}},
		{"upper case", "/?q=WEB", []string{"default/web"}},
		{"namespace", "/?q=default/", []string{"default/shop", "default/web"}},
		{"full name", "/?q=kube-system/dns", []string{"kube-system/dns"}},
		{"address", "/?q=10.96.0.81", []string{"default/shop"}},
		{"address and port", "/?q=10.96.0.81:8443", []string{"default/shop"}},
		{"external address", "/?q=198.51.100.7", []string{"default/web"}},
		{"port is the whole port", "/?q=80", []string{"idle/nothing", "default/web"}},
		{"node port", "/?q=30080", []string{"default/web"}},
		{"port name", "/?q=dns", []string{"kube-system/dns"}},
		{"protocol", "/?q=/udp", []string{"kube-system/dns"}},
		{"address of an endpoint", "/?q=10.244.1.2", []string{"default/shop"}},
		{"all words must be found", "/?q=default+8443", []string{"default/shop"}},
		{"words that contradict", "/?q=web+8443", []string{}},
		{"without endpoints", "/?show=empty", []string{"idle/nothing"}},
		{"without endpoints and a word", "/?show=empty&q=web", []string{}},
		{"page that is not there is the last", "/?page=9", []string{"idle/nothing", "default/shop", "default/web", "kube-system/dns"}},
		{"nonsense", "/?page=-1&show=x&order=y", []string{"idle/nothing", "default/shop", "default/web", "kube-system/dns"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := w.get(test.in)
			if r.Code != http.StatusOK {
				t.Errorf("status is %d", r.Code)
			}
			if diff := cmp.Diff(test.want, listed(r.Body.String())); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOverviewOfAService(t *testing.T) {
	body := shopWorld(t).get("/?q=default/web").Body.String()
	for _, want := range []string{
		"Serving", "node1", "v1.2.3", "nftables",
		"10.96.0.80:80<", "</i> :30080<", "</i> 198.51.100.7:80<", `2 <span class="quiet">(1 here)`, ">works<",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("page lacks %q:\n%s", want, body)
		}
	}
}

func TestModeWithoutCounters(t *testing.T) {
	for _, counts := range []bool{true, false} {
		w := newWorld(t, func(o *Options) {
			if !counts {
				o.Traffic = nil
			}
		})
		w.Sync(app("default/web", "10.96.0.80", nil)...)
		for path, column := range map[string]string{"/": "New conn./s", "/service?namespace=default&name=web": "Per second"} {
			if got := strings.Contains(w.get(path).Body.String(), column); got != counts {
				t.Errorf("%s with counters %t: column %q is there: %t", path, counts, column, got)
			}
		}
	}
}

func TestServicePageSaysWhatExplainSays(t *testing.T) {
	w := shopWorld(t)
	for _, from := range []string{"pod", "node", "outside", "203.0.113.9"} {
		t.Run(from, func(t *testing.T) {
			reply, err := w.page.Explain(t.Context(), explain.Question{To: "default/web", From: from})
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := explain.Write(&text, reply); err != nil {
				t.Fatal(err)
			}
			body := w.get("/service?namespace=default&name=web&from=" + from).Body.String()
			if got := explanation(t, body); !similar(got, text.String()) {
				t.Errorf("page explains (-want +got):\n%s", cmp.Diff(text.String(), got))
			}
		})
	}
}

// explanation is the text of explain in a page.
func explanation(t *testing.T, body string) string {
	t.Helper()
	var parts []string
	for _, m := range regexp.MustCompile(`(?s)<pre class="explain">(.*?)</pre>`).FindAllStringSubmatch(body, -1) {
		parts = append(parts, html.UnescapeString(m[1]))
	}
	if len(parts) == 0 {
		t.Fatalf("page has no explanation:\n%s", body)
	}
	return strings.Join(parts, "\n")
}

// similar compares texts except for durations.
func similar(a, b string) bool {
	ages := regexp.MustCompile(`[0-9.]+(µs|ms|s)\b`)
	return ages.ReplaceAllString(a, "T") == ages.ReplaceAllString(b, "T")
}

func TestServicePageAnswersEveryQuestion(t *testing.T) {
	w := shopWorld(t)
	tests := []struct {
		name, in string
		status   int
		want     string
	}{
		{"known", "/service?namespace=default&name=web", 200, "10.244.2.1"},
		{"endpoint decisions", "/service?namespace=default&name=web", 200, `<td class="is">used</td>`},
		{"no endpoints", "/service?namespace=idle&name=nothing", 200, "rejected"},
		{"unknown", "/service?namespace=default&name=wbe", 404, "not known"},
		{"nameless", "/service", 404, "not known"},
		{"question that cannot be understood", "/service?namespace=default&name=web&from=mars", 200, "mars"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := w.get(test.in)
			if r.Code != test.status || !strings.Contains(r.Body.String(), test.want) {
				t.Errorf("answer is %d without %q:\n%s", r.Code, test.want, r.Body)
			}
		})
	}
}

// The script finds elements by their ids.
func TestElementIDsAreUnique(t *testing.T) {
	w := newWorld(t)
	w.Sync(app("default/web", "10.96.0.80", nil, func(s *model.Service) {
		s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr("fd00::80"))
		s.Ports[0].NodePort = 30080
	})...)
	for path, want := range map[string]int{"/": 1, "/service?namespace=default&name=web": 4} {
		body := w.get(path).Body.String()
		if rows := len(listed(body)); rows != want {
			t.Errorf("%s has %d rows, want %d:\n%s", path, rows, want, body)
		}
		seen := map[string]bool{}
		for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(body, -1) {
			if seen[m[1]] {
				t.Errorf("%s has two elements of the id %q", path, m[1])
			}
			seen[m[1]] = true
		}
	}
}

func TestServiceOfManyPortsIsBounded(t *testing.T) {
	w := newWorld(t)
	w.Sync(app("default/web", "10.96.0.80", nil, func(s *model.Service) {
		s.Ports = nil
		for i := range 250 {
			s.Ports = append(s.Ports, model.ServicePort{Name: fmt.Sprint("port-", i), Protocol: model.TCP, Port: uint16(1000 + i)})
		}
	})...)
	body := w.get("/service?namespace=default&name=web").Body.String()
	if rows := len(listed(body)); rows != maxFrontends || !strings.Contains(body, "and 50 more<") {
		t.Errorf("page has %d rows, want %d and how many more there are", rows, maxFrontends)
	}
	answers := strings.Count(body, `<article class="card answer`)
	if want := fmt.Sprintf("and %d more ports<", 250-answers); answers == 250 || !strings.Contains(body, want) {
		t.Errorf("page has %d answers and lacks %q", answers, want)
	}
}

func TestFailuresAreOnTop(t *testing.T) {
	w := newWorld(t)
	w.Dataplane.Set(func(b *enginetest.Behaviour) {
		b.Refuse[netip.MustParseAddr("10.96.0.80")] = errors.New("no room left")
	})
	w.Sync(concat(
		app("default/good", "10.96.0.81", []string{"10.244.1.2"}),
		app("default/web", "10.96.0.80", []string{"10.244.1.1"}),
		app("default/odd", "10.96.0.82", []string{"10.244.1.1"}, func(s *model.Service) {
			s.Problems = []model.Problem{{Object: model.Object{Kind: "Service", Namespace: "default", Name: "odd"}, Field: "spec.ports[1].port", Reason: "0 is no port", Remedy: "use one from 1 to 65535"}}
		}),
	)...)
	body := w.get("/").Body.String()
	at := -1
	for _, want := range []string{"The kernel refused 1 frontend", "Service default/web at 10.96.0.80:80/TCP", "no room left", "Service default/odd",
		"spec.ports[1].port: 0 is no port", "use one from 1 to 65535", `id="services"`} {
		next := strings.Index(body, want)
		if next < at {
			t.Errorf("%q is not on the page, or not in this order:\n%s", want, body)
		}
		at = next
	}
	if diff := cmp.Diff([]string{"default/web", "default/odd"}, listed(w.get("/?show=failing").Body.String())); diff != "" {
		t.Errorf("failing (-want +got):\n%s", diff)
	}
}

func TestAdvisoriesAreOnTop(t *testing.T) {
	w := newWorld(t)
	w.advisories = []model.Problem{{Object: model.Object{Kind: "iptables-nft"}, Field: "chain FORWARD", Reason: "its policy is DROP", Remedy: "accept <all>"}}
	w.Sync(app("default/web", "10.96.0.80", []string{"10.244.1.1"})...)
	body := w.get("/").Body.String()
	for _, want := range []string{"iptables-nft", "chain FORWARD: its policy is DROP", "What to do:</span> accept &lt;all&gt;", `<dd title="nobody chose it">nftables</dd>`} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not on the page:\n%s", want, body)
		}
	}
}

func TestDrainingIsShown(t *testing.T) {
	w := newWorld(t)
	w.Sync(app("default/web", "10.96.0.80", nil)...)
	const label = "of an earlier kube-proxy"
	if body := w.get("/").Body.String(); strings.Contains(body, label) {
		t.Errorf("it drains without a reason:\n%s", body)
	}
	w.draining = &dataplane.Draining{Connections: 1234, Services: 5, Until: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	body := w.get("/").Body.String()
	for _, want := range []string{"1234 connections of an earlier kube-proxy at 5 virtual services, until 03:04:05 UTC"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not on the page:\n%s", want, body)
		}
	}
}

func TestForwardedConnectionsAreShown(t *testing.T) {
	w := newWorld(t)
	w.Sync(app("default/web", "10.96.0.80", nil)...)
	w.relay = &status.Relay{Connections: 1234, Limit: 5678}
	body := w.get("/").Body.String()
	for _, want := range []string{"1234 connections through this process, at most 5678"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not on the page:\n%s", want, body)
		}
	}
}

func TestFailingKernelIsOnTop(t *testing.T) {
	w := newWorld(t)
	w.Dataplane.Set(func(b *enginetest.Behaviour) { b.Err = errors.New("operation not permitted") })
	w.Source.Update(app("default/web", "10.96.0.80", nil)...)
	w.Source.Synced()
	testkit.Eventually(t, func() error {
		if body := w.get("/").Body.String(); !strings.Contains(body, "operation not permitted") || !strings.Contains(body, ">Not serving<") {
			return fmt.Errorf("page does not say that programming fails:\n%s", body)
		}
		return nil
	})
}

func TestStartIsShown(t *testing.T) {
	w := newWorld(t)
	if body := w.get("/").Body.String(); !strings.Contains(body, "Waiting for test") || !strings.Contains(body, "No Service is known yet") {
		t.Errorf("page does not say what it waits for:\n%s", body)
	}
	hold := make(chan struct{})
	w.Dataplane.Set(func(b *enginetest.Behaviour) { b.Hold = hold; b.Progress.Done, b.Progress.Total = 250, 1000 })
	w.Source.Update(app("default/web", "10.96.0.80", nil)...)
	w.Source.Synced()
	testkit.Eventually(t, func() error {
		if body := w.get("/").Body.String(); !strings.Contains(body, `<progress value="250" max="1000">25 %`) {
			return fmt.Errorf("page shows no progress:\n%s", body)
		}
		return nil
	})
	close(hold)
	w.Settle()
	if body := w.get("/").Body.String(); strings.Contains(body, "<progress") || !strings.Contains(body, "Serving") {
		t.Errorf("page shows progress when it is over:\n%s", body)
	}
}

func TestSecurityHeaders(t *testing.T) {
	w := shopWorld(t)
	for _, path := range []string{"/", "/service?namespace=default&name=web", "/page/page.css", "/page/page.js", "/page/icon.svg"} {
		r := w.get(path)
		h := r.Header()
		if r.Code != http.StatusOK || !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self';") ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Type") == "" {
			t.Errorf("%s is %d with %v", path, r.Code, h)
		}
	}
	body := w.get("/").Body.String() + w.get("/service?namespace=default&name=web").Body.String()
	if found := regexp.MustCompile(`(?i)<style|style=|<script(?: src="/page/page.js" defer)?>[^<]|\son\w+=|https?://`).FindString(body); found != "" {
		t.Errorf("page has %q in it, which needs what is forbidden", found)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	w := shopWorld(t)
	tests := []struct {
		method, path string
		want         int
	}{
		{"GET", "/page/", 404}, {"GET", "/page/overview.html", 404}, {"GET", "/page/../page.go", 404},
		{"GET", "/..%2f..%2fetc/passwd", 404}, {"GET", "/page/../../etc/passwd", 404}, {"GET", "/page/..%2fpage.go", 404},
		{"GET", "/page/%2e%2e/%2e%2e/page.go", 404}, {"GET", "/nope%0d%0aX-Evil:1", 404},
		{"GET", "/service/x", 404}, {"GET", "/index.html", 404},
		{"POST", "/", 405}, {"DELETE", "/service", 405}, {"PUT", "/page/page.css", 405},
		{"HEAD", "/", 200},
	}
	for _, test := range tests {
		r := httptest.NewRecorder()
		w.page.ServeHTTP(r, httptest.NewRequest(test.method, test.path, nil))
		if r.Code != test.want && r.Code/100 != 3 {
			t.Errorf("%s %s is %d, want %d", test.method, test.path, r.Code, test.want)
		}
	}
}

func TestAssetsAreCached(t *testing.T) {
	w := newWorld(t)
	r := httptest.NewRequest(http.MethodGet, "/page/page.css", nil)
	r.Header.Set("If-None-Match", w.get("/page/page.css").Header().Get("ETag"))
	again := httptest.NewRecorder()
	w.page.ServeHTTP(again, r)
	if again.Code != http.StatusNotModified {
		t.Errorf("status is %d", again.Code)
	}
}

// blocked is a page whose explanations block until release is called.
func blocked(t *testing.T) (w *world, asked chan struct{}, release func()) {
	asked, hold := make(chan struct{}, 100), make(chan struct{})
	w = newWorld(t, func(o *Options) {
		o.Explain = func(ctx context.Context, _ explain.Question) (*explain.Reply, error) {
			asked <- struct{}{}
			<-hold
			return &explain.Reply{}, nil
		}
	})
	w.Sync(app("default/web", "10.96.0.80", nil)...)
	return w, asked, func() { close(hold) }
}

func TestRenderingDelaysNoChange(t *testing.T) {
	w, asked, release := blocked(t)
	done := make(chan struct{})
	go func() { defer close(done); w.get("/service?namespace=default&name=web") }()
	<-asked
	w.Change(app("default/shop", "10.96.0.81", nil)...)
	release()
	<-done
}

func TestConcurrentRequestsAreLimited(t *testing.T) {
	w, asked, release := blocked(t)
	done := make(chan struct{})
	for range maxConcurrent {
		go func() { w.get("/service?namespace=default&name=web"); done <- struct{}{} }()
		<-asked
	}
	if r := w.get("/"); r.Code != http.StatusServiceUnavailable || r.Header().Get("Retry-After") == "" {
		t.Errorf("one more is answered with %d, %v", r.Code, r.Header())
	}
	release()
	for range maxConcurrent {
		<-done
	}
	if r := w.get("/"); r.Code != http.StatusOK {
		t.Errorf("the next one is answered with %d", r.Code)
	}
}

// hostile are texts that do harm unless they are escaped.
var hostile = []string{
	`<script>window.harmed=1</script>`,
	`"><img src=x onerror=window.harmed=1>`,
	`javascript:window.harmed=1`,
	`{{.Report}}`,
	"\x1b[2J\u202egone\x00",
	`'&amp;<b`,
	strings.Repeat("n", 253),
	`..`, `a/b?c#d`,
}

// hostileWorld has all of them wherever a text can be.
func hostileWorld(t *testing.T) *world {
	w := newWorld(t)
	w.Dataplane.Set(func(b *enginetest.Behaviour) {
		b.Refuse[netip.MustParseAddr("10.96.0.0")] = errors.New(hostile[0] + hostile[4])
	})
	var events []model.Event
	for i, text := range hostile {
		events = append(events, app("default/x", fmt.Sprintf("10.96.0.%d", i), []string{"10.244.1.1"}, func(s *model.Service) {
			s.Name = model.Name{Namespace: "ns" + text, Name: text}
			s.Ports[0].Name = text
			s.Problems = []model.Problem{{Object: model.ServiceObject(s.Name), Field: text, Reason: text, Remedy: text}}
		})...)
	}
	w.Sync(events...)
	return w
}

func TestHostileNamesStayText(t *testing.T) {
	w := hostileWorld(t)
	pages := []string{"/", "/map", "/problems", "/events"}
	for _, text := range hostile {
		pages = append(pages, serviceLink(model.Name{Namespace: "ns" + text, Name: text}), query{Text: text, Page: 1}.Link(),
			serviceLink(model.Name{Namespace: "default", Name: text})+"&"+url.Values{"from": {text}}.Encode())
	}
	bad := regexp.MustCompile("(?i)<script>|<img src=x|<b[<'\"]|href=\"javascript|[\x00-\x08\x0b-\x1f\u202e]")
	for _, path := range pages {
		r := w.get(path)
		if r.Code != http.StatusOK && r.Code != http.StatusNotFound {
			t.Errorf("%s is %d", path, r.Code)
		}
		// Forms must submit the value unchanged.
		body := regexp.MustCompile(`<(?:input type="hidden"|option)[^>]*>`).ReplaceAllString(r.Body.String(), "")
		if found := bad.FindString(body); found != "" {
			t.Errorf("%s has %q in it:\n%s", path, found, body)
		}
	}
}

func TestEveryHostileNameHasAPage(t *testing.T) {
	w := hostileWorld(t)
	for _, text := range hostile {
		name := model.Name{Namespace: "ns" + text, Name: text}
		if r := w.get(serviceLink(name)); r.Code != http.StatusOK {
			t.Errorf("page of %q is %d", name, r.Code)
		}
	}
}

func TestPagesOfABigClusterAreBounded(t *testing.T) {
	const most = 64 << 10
	w := newWorld(t)
	w.Sync(many(10000)...)
	for _, path := range []string{"/", "/?page=200", "/?q=service", "/?show=empty", "/?order=rate"} {
		body := w.get(path).Body.String()
		if rows := len(listed(body)); rows > rowsPerPage || len(body) > most {
			t.Errorf("%s has %d rows and %d bytes, want at most %d and %d", path, rows, len(body), rowsPerPage, most)
		}
	}
	if got := listed(w.get("/?q=service-04321").Body.String()); len(got) != 1 {
		t.Errorf("search found %v", got)
	}
}

func BenchmarkOverviewOf10000Services(b *testing.B) {
	w := newWorld(b)
	w.Sync(many(10000)...)
	w.Dataplane.Set(func(b *enginetest.Behaviour) {
		w.Engine.Inspect(func(v engine.View) {
			d := v.Desired
			for key := range d.Frontends {
				b.Connections[key] = 1
			}
		})
	})
	for _, path := range []string{"/", "/?order=rate", "/?q=service-04321", "/service?namespace=team-1&name=service-04321", "/map"} {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.get(path)
			}
		})
	}
	b.Run("after a change", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.page.last.Store(&cluster{indexes: w.page.cluster().indexes})
			w.get("/")
		}
	})
}
