package kubernetes

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// wantNoOutage checks that no outage was logged.
func wantNoOutage(f *fixture) {
	f.Helper()
	if lines := f.logged("Cannot reach"); len(lines) > 0 {
		f.Errorf("the end of a watch was taken for a failure:\n%s", strings.Join(lines, "\n"))
	}
}

// TestWatchResumesFromLastVersion ends watches again and again, some of
// them in the middle of changes. Nothing is listed again for that.
func TestWatchResumesFromLastVersion(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		server.put(servicesPath, aService("web", "10.96.0.1"))
		f := follow(t, server, func(o *Options) { o.retry = retry })
		f.inSync()
		lists := server.listed(servicesPath)
		for i := range 6 {
			server.drop()
			server.put(servicesPath, aService("web", fmt.Sprintf("10.96.1.%d", i)))
			f.hears(fmt.Sprintf("service default/web [10.96.1.%d]", i))
		}
		if more := server.listed(servicesPath) - lists; more > 0 {
			t.Errorf("the Services were listed %d times more", more)
		}
		versions := server.watched(servicesPath)
		if number := func(v string) int { n, _ := strconv.Atoi(v); return n }; len(versions) < 6 ||
			!slices.IsSortedFunc(versions, func(a, b string) int { return number(a) - number(b) }) || number(versions[0]) < 100 {
			t.Errorf("watches went on from the versions %v", versions)
		}
		wantNoOutage(f)
	})
}

// TestShortWatchesLoseNothing meets a server that answers each
// watch with what is new and hangs up, or with nothing at all.
func TestShortWatchesLoseNothing(t *testing.T) {
	server := newAPIServer(t, false, servicesPath, slicesPath, nodesPath, cidrsPath)
	server.setFault(func(w http.ResponseWriter, r *http.Request) {
		if streamed(r.URL) || r.URL.Query().Get("watch") != "true" {
			server.answer(w, r)
			return
		}
		server.mu.Lock()
		res := server.resources[r.URL.Path]
		server.mu.Unlock()
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
		server.send(w, res, since)
	})
	f := follow(t, server, func(o *Options) { o.retry = retry })
	f.inSync()
	lists := server.listed(servicesPath)
	for i := range 3 {
		name := fmt.Sprintf("web-%d", i)
		server.put(servicesPath, aService(name, "10.96.0.1"))
		f.hears("service default/" + name + " [10.96.0.1]")
	}
	if more := server.listed(servicesPath) - lists; more > 0 {
		t.Errorf("the Services were listed %d times more", more)
	}
	wantNoOutage(f)
}

func streamed(u *url.URL) bool { return u.Query().Get("sendInitialEvents") == "true" }

// TestShortWatchesAreRateLimited looks at the pauses: they are
// about a second soon, and never more.
func TestShortWatchesAreRateLimited(t *testing.T) {
	pause := rewatchBackoff
	var total time.Duration
	for range 20 {
		step := pause.Step()
		if total += step; step > 2*time.Second {
			t.Errorf("news wait for %s", step)
		}
	}
	if total < 10*time.Second {
		t.Errorf("20 watches are opened within %s", total)
	}
}

// TestWatchResumesAfterOutage breaks off watches and refuses new
// ones for a while. The server still knows what happened meanwhile.
func TestWatchResumesAfterOutage(t *testing.T) {
	faults := map[string]http.HandlerFunc{
		"internal error": func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		},
		"unavailable": func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		},
		"overload": func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, server *apiServer) {
				f := follow(t, server, nil)
				f.inSync()
				lists := server.listed(servicesPath)
				server.setFault(fault)
				f.eventually("a failure", func() bool {
					server.drop() // a request may have been on its way to the server's own answer
					return !f.source.Connected()
				})
				server.put(servicesPath, aService("web", "10.96.0.1"))
				server.setFault(nil)
				f.hears("service default/web [10.96.0.1]")
				f.eventually("being connected", f.source.Connected)
				if more := server.listed(servicesPath) - lists; more > 0 {
					t.Errorf("the Services were listed %d times more", more)
				}
			})
		})
	}
}

// TestRetriesAreSoon keeps the longest pause between two requests within seconds.
func TestRetriesAreSoon(t *testing.T) {
	pause := retry
	for range 50 {
		if step := pause.Step(); step > 10*time.Second {
			t.Fatalf("a server that came back is asked after %s", step)
		}
	}
}
