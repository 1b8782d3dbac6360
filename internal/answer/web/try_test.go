package web

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/model"
	"sluice/internal/observe/experiment"
	"sluice/test/browser"
)

// sent is the form of the button, and own what browsers say of our own page.
func sent(service, from, to string) url.Values {
	namespace, name, _ := strings.Cut(service, "/")
	return url.Values{"namespace": {namespace}, "name": {name}, "from": {from}, "to": {to}}
}

var own = map[string]string{"Sec-Fetch-Site": "same-origin"}

// outcome is an experiment that ends in a way.
func outcome(o experiment.Outcome) func(experiment.Attempt) *experiment.Result {
	return func(a experiment.Attempt) *experiment.Result {
		return &experiment.Result{Outcome: o, From: a.From.String(), To: a.To, Protocol: a.Protocol.String(), Seconds: 0.00021,
			Endpoint: netip.MustParseAddrPort("10.244.1.1:8080"), SeenAs: netip.MustParseAddrPort("192.0.2.10:40000")}
	}
}

// The page shows what a connection met beside what was predicted, in the words of explain, and
// shows it again when it is asked for again.
func TestConnectionIsSent(t *testing.T) {
	for _, tt := range []struct {
		name, service, from, to string
		outcome                 experiment.Outcome
		want                    []string
	}{
		{"answered", "default/web", "node", "10.96.0.80:80/TCP", experiment.Answered,
			[]string{`class="trial good"`, "answered by 10.244.1.1:8080 after 210µs, which sees 192.0.2.10", "It means: as predicted"}},
		{"refused", "default/web", "node", "10.96.0.80:80/TCP", experiment.ConnectionRefused,
			[]string{`class="trial bad"`, "refused by 10.244.1.1:8080", "IT MEANS", "It means: the packet reached 10.244.1.1:8080, which refused it", "compare targetPort"}},
		{"silent", "default/web", "pod", "10.96.0.80:80/TCP", experiment.Silent,
			[]string{`class="trial bad"`, "no answer from 10.244.1.1:8080", "nothing came back: the pod is gone"}},
		{"silent by UDP", "kube-system/dns", "node", "10.96.0.10:53/UDP", experiment.Silent, []string{`class="trial fair"`, "which says little"}},
		{"refused, as predicted", "idle/nothing", "node", "10.96.0.99:80/TCP", experiment.ConnectionRefused,
			[]string{`<span class="state bad">refused</span> the Service has no endpoint`, "It means: as predicted"}},
		{"an address for clients outside", "default/web", "outside", "198.51.100.7:80/TCP", experiment.Answered, []string{"at 198.51.100.7:80/TCP", "It means: as predicted"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := shopWorld(t)
			w.try = outcome(tt.outcome)
			page := serviceLink(serviceNamed(tt.service)) + "&from=" + tt.from
			if body := w.get(page).Body.String(); !strings.Contains(body, `name="to" value="`+tt.to+`"`) {
				t.Errorf("the page has no button for %s:\n%s", tt.to, body)
			}
			r := w.post("/try", sent(tt.service, tt.from, tt.to), own)
			at := r.Header().Get("Location")
			if r.Code != http.StatusSeeOther || !strings.HasPrefix(at, serviceLink(serviceNamed(tt.service))+"&from=node&tried=") {
				t.Fatalf("it is answered %d, Location %q: %s", r.Code, at, r.Body)
			}
			for range 2 {
				body := html.UnescapeString(w.get(at).Body.String())
				for _, want := range append(tt.want, "Tried from this node at ", "TRIED from this node: ") {
					if !strings.Contains(body, want) {
						t.Errorf("the page lacks %q:\n%s", want, body)
					}
				}
				if n := strings.Count(body, `id="trial"`); n != 1 {
					t.Errorf("%d answers have a result", n)
				}
			}
			other := strings.Replace(at, "name="+serviceNamed(tt.service).Name, "name=shop", 1)
			for _, page := range []string{page, at + "x", other} {
				if body := w.get(page).Body.String(); strings.Contains(body, "trial") {
					t.Errorf("%s shows a result that it has not asked for:\n%s", page, body)
				}
			}
		})
	}
}

func serviceNamed(s string) model.Name {
	namespace, name, _ := strings.Cut(s, "/")
	return model.Name{Namespace: namespace, Name: name}
}

// Nothing is sent but for the page itself, and to an address that it shows.
func TestNothingElseIsSent(t *testing.T) {
	good := sent("default/web", "node", "10.96.0.80:80/TCP")
	for _, tt := range []struct {
		name   string
		method string
		form   url.Values
		header map[string]string
		code   int
		want   string
	}{
		{"by a link", "GET", good, own, 405, "by the button"},
		{"by PUT", "PUT", good, own, 405, ""},
		{"by another site", "POST", good, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, "cross-site"},
		{"by another origin", "POST", good, map[string]string{"Origin": "https://evil.example"}, 403, "https://evil.example"},
		{"by no browser", "POST", good, nil, 403, "neither Sec-Fetch-Site nor Origin"},
		{"to an address of nobody", "POST", sent("default/web", "node", "192.0.2.1:22/TCP"), own, 400, "does not reach Service default/web"},
		{"to another Service", "POST", sent("default/web", "node", "10.96.0.81:8443/TCP"), own, 400, "does not reach Service default/web"},
		{"to nothing", "POST", sent("default/web", "node", ""), own, 400, "does not reach Service default/web"},
		{"to a Service that is not there", "POST", sent("default/wbe", "node", "10.96.0.80:80/TCP"), own, 400, "does not reach Service default/wbe"},
		{"from an address of nobody", "POST", sent("default/web", "198.18.255.254", "198.51.100.7:80/TCP"), own, 400, "has the address 198.18.255.254"},
		{"from nonsense", "POST", sent("default/web", "mars", "10.96.0.80:80/TCP"), own, 400, "mars"},
		{"with too much", "POST", sent("default/web", strings.Repeat("n", maxForm), ""), own, 400, "too large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := shopWorld(t)
			w.try = func(experiment.Attempt) *experiment.Result { t.Error("it is tried"); return &experiment.Result{} }
			request := httptest.NewRequest(tt.method, "/try", strings.NewReader(tt.form.Encode()))
			if tt.method == http.MethodGet {
				request = httptest.NewRequest(tt.method, "/try?"+tt.form.Encode(), nil)
			}
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			for name, value := range tt.header {
				request.Header.Set(name, value)
			}
			r := httptest.NewRecorder()
			w.page.ServeHTTP(r, request)
			if body := html.UnescapeString(r.Body.String()); r.Code != tt.code || !strings.Contains(body, tt.want) || r.Header().Get("Location") != "" {
				t.Errorf("it is answered %d, want %d with %q:\n%s", r.Code, tt.code, tt.want, body)
			}
		})
	}
}

// One is sent at a time, and one a second.
func TestFewConnectionsAreSent(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC))
	w := newWorldAt(t, clock)
	w.Sync(app("default/web", "10.96.0.80", []string{"10.244.1.1"})...)
	form := sent("default/web", "node", "10.96.0.80:80/TCP")
	w.try = outcome(experiment.Answered)
	send := func(want int) *httptest.ResponseRecorder {
		t.Helper()
		r := w.post("/try", form, own)
		if r.Code != want || (want == http.StatusTooManyRequests) != (r.Header().Get("Retry-After") == "1") {
			t.Errorf("it is answered %d with %v, want %d", r.Code, r.Header(), want)
		}
		return r
	}
	send(http.StatusSeeOther)
	clock.Step(tryEvery - time.Millisecond)
	if r := send(http.StatusTooManyRequests); !strings.Contains(r.Body.String(), "Nothing was sent: this node sends one connection at a time") {
		t.Errorf("it does not say why:\n%s", r.Body)
	}
	clock.Step(time.Millisecond)
	begun, hold, done := make(chan struct{}), make(chan struct{}), make(chan int)
	w.try = func(a experiment.Attempt) *experiment.Result {
		close(begun)
		<-hold
		return outcome(experiment.Silent)(a)
	}
	go func() { done <- w.post("/try", form, own).Code }()
	<-begun
	clock.Step(10 * tryEvery)
	send(http.StatusTooManyRequests)
	close(hold)
	if code := <-done; code != http.StatusSeeOther {
		t.Errorf("the one that took long is answered %d", code)
	}
	w.try = outcome(experiment.Answered)
	first := send(http.StatusSeeOther).Header().Get("Location")
	for range maxTrials {
		clock.Step(tryEvery)
		send(http.StatusSeeOther)
	}
	if n := len(w.page.trials.all); n != maxTrials || strings.Contains(w.get(first).Body.String(), "trial") {
		t.Errorf("%d results are remembered", n)
	}
}

// sendsOne sends connections with a button, and looks at the results for a while.
func sendsOne(t *testing.T, b *browser.Browser) {
	w := shopWorld(t)
	w.try = outcome(experiment.ConnectionRefused)
	address := w.serve() + "/service?namespace=default&name=web"
	tab := b.Open(t, address, browser.Light)
	browser.Eval[int](tab, "window.mark = 1")
	tab.Click(".send button")
	tab.Wait(`document.querySelector("#trial")?.innerText.includes("refused by 10.244.1.1:8080")`)
	tab.Wait(`new URLSearchParams(location.search).has("tried") && window.mark === 1`)
	for range 2 { // it stays while the page is renewed
		time := tab.Text("#time")
		tab.Wait(fmt.Sprintf(`document.querySelector("#time").innerText !== %q`, time))
		if text := tab.Text("#trial"); !strings.Contains(text, "which refused it") || !strings.Contains(text, "What to do:") {
			t.Errorf("the result is\n%s", text)
		}
	}
	tab.Wait(`document.querySelector(".send button").innerText === "Send one" && !document.querySelector(".send button").disabled`)
	if pale := browser.Eval[[]string](tab, faint); len(pale) > 0 {
		t.Errorf("these are hard to read: %q", pale)
	}
	shoot(t, tab, "trial")
	tab.WantNoErrors()

	plain := b.Open(t, address, browser.NoScript)
	plain.Click(".send button")
	plain.Wait(`document.querySelector("#trial")?.innerText.includes("refused by 10.244.1.1:8080")`)
	plain.WantNoErrors()
}
