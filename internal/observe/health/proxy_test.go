package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/base/httpserver"
	"sluice/internal/base/socketerror"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/testkit"
)

func TestProxyHealth(t *testing.T) {
	const (
		now    = `"2026-01-02T03:04:05.006Z"`
		before = `"2026-01-02T02:04:05.006Z"`
		never  = `"0001-01-01T00:00:00Z"`
		good   = `"status":{"IPv4":{"lastUpdated":` + before + `,"healthy":true},"IPv6":{"lastUpdated":` + before + `,"healthy":true}}`
		bad    = `"status":{"IPv4":{"lastUpdated":` + before + `,"healthy":false},"IPv6":{"lastUpdated":` + before + `,"healthy":false}}`
	)
	current := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	ago := func(d time.Duration) time.Time { return current.Add(-d) }
	done := ago(time.Hour)
	late := engine.Summary{Synced: true, LastCommit: done, PendingSince: ago(61 * time.Second)}
	tests := []struct {
		name    string
		in      engine.Summary
		leaving string
		path    string
		status  int
		body    string
	}{
		{"starting", engine.Summary{WaitingFor: []string{"host"}}, "", "/healthz", 503, `{"lastUpdated":` + never + `,"currentTime":` + now + `,"nodeEligible":true,"healthy":false,"reason":"waiting for host"}`},
		{"starting, alive", engine.Summary{}, "", "/livez", 200, `{"lastUpdated":` + now + `,"currentTime":` + now + `,"healthy":true}`},
		{"all done", engine.Summary{LastCommit: done}, "", "/healthz", 200, `{"lastUpdated":` + now + `,"currentTime":` + now + `,"nodeEligible":true,"healthy":true,` + good + `}`},
		{"all done, alive", engine.Summary{LastCommit: done}, "", "/livez", 200, `{"lastUpdated":` + now + `,"currentTime":` + now + `,"healthy":true,` + good + `}`},
		{"a change waits too long", late, "", "/healthz", 503, `{"lastUpdated":` + before + `,"currentTime":` + now + `,"nodeEligible":true,"healthy":false,` + bad + `,"reason":"the kernel has not followed for too long; what was programmed before stays in force"}`},
		{"a change waits too long, not alive", late, "", "/livez", 503, `{"lastUpdated":` + before + `,"currentTime":` + now + `,"healthy":false,` + bad + `}`},
		{"programming fails from the start", engine.Summary{FailingSince: done, LastError: errors.New("no such device")}, "", "/healthz", 503, `{"lastUpdated":` + never + `,"currentTime":` + now + `,"nodeEligible":true,"healthy":false,"reason":"the kernel cannot be programmed: no such device"}`},
		{"programming fails", engine.Summary{LastCommit: done, FailingSince: ago(61 * time.Second)}, "", "/livez", 503, `{"lastUpdated":` + before + `,"currentTime":` + now + `,"healthy":false,` + bad + `}`},
		{"the node is leaving", engine.Summary{LastCommit: done}, "deleted", "/healthz", 503, `{"lastUpdated":` + before + `,"currentTime":` + now + `,"nodeEligible":false,"healthy":true,` + good + `}`},
		{"the node is leaving, the proxy alive", engine.Summary{LastCommit: done}, "deleted", "/livez", 200, `{"lastUpdated":` + now + `,"currentTime":` + now + `,"healthy":true,` + good + `}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var counted []string
			proxy := NewProxy(ProxyOptions{
				Status:   summaryOf(tt.in),
				Leaving:  func() string { return tt.leaving },
				Answered: func(path string, status int) { counted = append(counted, fmt.Sprint(path, " ", status)) },
				Clock:    clocktesting.NewFakeClock(current),
			})
			got := httptest.NewRecorder()
			proxy.Handler().ServeHTTP(got, httptest.NewRequest(http.MethodGet, tt.path, nil))
			if got.Code != tt.status {
				t.Errorf("status %d, want %d", got.Code, tt.status)
			}
			if diff := cmp.Diff(tt.body, got.Body.String()); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			header := http.Header{"Content-Type": {"application/json"}, "X-Content-Type-Options": {"nosniff"}}
			if diff := cmp.Diff(header, got.Header()); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{fmt.Sprint(tt.path, " ", tt.status)}, counted); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProxyReportsSupportedFamilies(t *testing.T) {
	proxy := NewProxy(ProxyOptions{
		Families: []model.Family{model.IPv4},
		Status:   summaryOf(engine.Summary{LastCommit: time.Now()}),
	})
	for _, path := range []string{"/healthz", "/livez"} {
		got := httptest.NewRecorder()
		proxy.Handler().ServeHTTP(got, httptest.NewRequest(http.MethodGet, path, nil))
		if body := got.Body.String(); !strings.Contains(body, `"IPv4":`) || strings.Contains(body, "IPv6") {
			t.Errorf("%s says %s", path, body)
		}
	}
}

// Load balancers send nothing before this process has programmed the kernel, from its first
// moment on. To start it again would not help.
func TestNeverProgrammedIsUnhealthy(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	summary := engine.Summary{SyncPeriod: 30 * time.Second}
	proxy := NewProxy(ProxyOptions{Status: func() engine.Summary { return summary }, Clock: clock})
	check := func(when, path string, want int) {
		t.Helper()
		got := httptest.NewRecorder()
		proxy.Handler().ServeHTTP(got, httptest.NewRequest(http.MethodGet, path, nil))
		if got.Code != want {
			t.Errorf("%s, %s says %d, want %d", when, path, got.Code, want)
		}
	}
	for _, when := range []string{"at first", "after an hour"} {
		check(when, "/healthz", 503)
		check(when, "/readyz", 503)
		check(when, "/livez", 200)
		clock.Step(time.Hour)
	}
	summary.LastCommit = clock.Now()
	clock.Step(time.Hour)
	check("once programmed", "/healthz", 200)
}

// Load balancers go elsewhere while the proxy waits for another one, and learn why. To
// start it again would not help.
func TestWaitingProxySaysWhatFor(t *testing.T) {
	proxy := NewProxy(ProxyOptions{Status: summaryOf(engine.Summary{}), Waiting: func() string { return "waiting for another (pid 7)" }})
	for path, want := range map[string]struct {
		status  int
		healthy string
	}{"/healthz": {503, `"healthy":false`}, "/livez": {200, `"healthy":true`}} {
		got := httptest.NewRecorder()
		proxy.Handler().ServeHTTP(got, httptest.NewRequest(http.MethodGet, path, nil))
		body := got.Body.String()
		if got.Code != want.status || !strings.Contains(body, want.healthy) || !strings.Contains(body, `"reason":"waiting for another (pid 7)"`) {
			t.Errorf("%s says %d, %s", path, got.Code, body)
		}
	}
}

func TestProxyKnowsFewPathsOnly(t *testing.T) {
	counted := 0
	proxy := NewProxy(ProxyOptions{
		Status:   func() engine.Summary { return engine.Summary{} },
		Answered: func(string, int) { counted++ },
	})
	for _, path := range []string{"/", "/healthz/", "/readyz/", "/metrics"} {
		got := httptest.NewRecorder()
		proxy.Handler().ServeHTTP(got, httptest.NewRequest(http.MethodGet, path, nil))
		if got.Code != http.StatusNotFound || counted != 0 {
			t.Errorf("%s: status %d, counted %d", path, got.Code, counted)
		}
	}
}

// runProxy runs a Proxy until the test ends or stop is called, which returns
// what Run did.
func runProxy(t *testing.T, proxy *Proxy) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- proxy.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func TestProxyAddresses(t *testing.T) {
	at := netip.AddrPortFrom(here, 10256).String()
	stop := runProxy(t, NewProxy(ProxyOptions{
		Address: at, Status: summaryOf(engine.Summary{LastCommit: time.Now()}), Logger: new(testkit.Journal).Logger(),
	}))
	testkit.Eventually(t, func() error {
		response, err := http.Get("http://" + at + "/healthz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s %s, %v", response.Status, body, err)
		}
		return nil
	})
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if socket, err := net.Listen("tcp", at); err != nil {
		t.Errorf("the address is not free afterwards: %v", err)
	} else {
		socket.Close()
	}
}

func TestProxyRetriesToListen(t *testing.T) {
	busy, denied := fmt.Errorf("listen: %w", socketerror.AddressInUse), fmt.Errorf("listen: %w", socketerror.NotPermitted)
	outcomes := []error{busy, busy, denied, nil}
	clk := clocktesting.NewFakeClock(time.Unix(10_000, 0))
	var log testkit.Journal
	var mu sync.Mutex
	var failures []error
	proxy := NewProxy(ProxyOptions{
		Address: "x:1", Logger: log.Logger(), Clock: clk,
		Failed: func(err error) { mu.Lock(); failures = append(failures, err); mu.Unlock() },
		Status: func() engine.Summary { return engine.Summary{} },
	})
	listening := make(chan struct{})
	tries := 0
	proxy.listen = func(string, string) (net.Listener, error) {
		err := outcomes[tries]
		tries++
		if err != nil {
			return nil, err
		}
		close(listening)
		return net.Listen("tcp", netip.AddrPortFrom(there, 0).String())
	}
	stop := runProxy(t, proxy)
	for range 3 {
		testkit.Eventually(t, func() error {
			if !clk.HasWaiters() {
				return errors.New("does not wait")
			}
			return nil
		})
		clk.Step(httpserver.RetryAfter)
	}
	<-listening
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	if len(failures) != 2 || !slices.ContainsFunc(failures, is(busy)) || !slices.ContainsFunc(failures, is(denied)) {
		t.Errorf("reported %v", failures)
	}
	if n := len(log.With("Cannot serve the proxy's health")); n != 2 {
		t.Errorf("logged %d times", n)
	}
}

func TestHardFail(t *testing.T) {
	socket, err := net.Listen("tcp", netip.AddrPortFrom(there, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	failures := 0
	proxy := NewProxy(ProxyOptions{
		Address: socket.Addr().String(), HardFail: true, Logger: new(testkit.Journal).Logger(),
		Failed: func(error) { failures++ },
		Status: func() engine.Summary { return engine.Summary{} },
	})
	if err := proxy.Run(context.Background()); !errors.Is(err, socketerror.AddressInUse) || failures != 1 {
		t.Errorf("Run: %v, reported %d failures", err, failures)
	}
}

// A rolling update goes on once this process serves, and is not stopped by what no
// version can help.
func TestReady(t *testing.T) {
	current := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return current.Add(-d) }
	done, refused := ago(time.Hour), errors.New("no such device")
	const away = "the API server has not been reachable for 2m0s: connection refused"
	tests := []struct {
		name            string
		in              engine.Summary
		waiting, source string
		reason          string // "" if it is ready
	}{
		{"starting", engine.Summary{WaitingFor: []string{"host", "kubernetes"}}, "", "", "waiting for host, kubernetes"},
		{"API server never reached", engine.Summary{WaitingFor: []string{"kubernetes"}}, "", away, away},
		{"first commit in progress", engine.Summary{Synced: true}, "", "", "the kernel is being programmed for the first time"},
		{"first commit fails", engine.Summary{Synced: true, FailingSince: ago(time.Second), LastError: refused}, "", "", "the kernel cannot be programmed: no such device"},
		{"waiting for another proxy", engine.Summary{}, "waiting for another", "", "waiting for another"},
		{"all done", engine.Summary{Synced: true, LastCommit: done}, "", "", ""},
		{"serving the past", engine.Summary{Synced: true, LastCommit: done}, "", away, ""},
		{"some frontend is refused", engine.Summary{Synced: true, LastCommit: done, Failed: 1}, "", "", ""},
		{"fails for a moment", engine.Summary{Synced: true, LastCommit: done, FailingSince: ago(time.Minute), LastError: refused}, "", "", ""},
		{"fails for long", engine.Summary{Synced: true, LastCommit: done, FailingSince: ago(61 * time.Second), LastError: refused}, "", "", "the kernel cannot be programmed: no such device; what was programmed before stays in force"},
		{"is behind for long", engine.Summary{Synced: true, LastCommit: done, PendingSince: ago(61 * time.Second)}, "", "", "the kernel has not followed for too long; what was programmed before stays in force"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			proxy := NewProxy(ProxyOptions{
				Status:  summaryOf(tt.in),
				Waiting: func() string { return tt.waiting },
				Verdict: func() verdict.Proxy {
					return verdict.OfProxy(verdict.Facts{Summary: summaryOf(tt.in)(), Now: current, Waiting: tt.waiting, Source: verdict.Source{Away: tt.source}})
				},
				Leaving: func() string { return "deleted" }, // a node that leaves stays ready
				Answered: func(path string, _ int) {
					t.Errorf("%s is counted, for which upstream has no metric", path)
				},
				Clock: clocktesting.NewFakeClock(current),
			})
			got := httptest.NewRecorder()
			proxy.Handler().ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			var body struct {
				Healthy bool
				Reason  string
			}
			if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil {
				t.Fatalf("%v: %s", err, got.Body)
			}
			ready := tt.reason == ""
			if body.Reason != tt.reason || body.Healthy != ready || (got.Code == http.StatusOK) != ready {
				t.Errorf("/readyz says %d, %s", got.Code, got.Body)
			}
		})
	}
}
