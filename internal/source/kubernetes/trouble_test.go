package kubernetes

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"sluice/internal/testkit"
)

// TestRelistPassesDifferencesOnly lets the server forget what happened while the
// source could not hear it.
func TestRelistPassesDifferencesOnly(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		for i := range 50 {
			server.put(servicesPath, aService(fmt.Sprintf("same-%d", i), fmt.Sprintf("10.96.1.%d", i)))
			server.put(slicesPath, aSlice(fmt.Sprintf("same-%d", i), fmt.Sprintf("10.0.1.%d", i)))
		}
		server.put(servicesPath, aService("gone", "10.96.0.1"), aService("changed", "10.96.0.2"))
		f := follow(t, server, nil)
		f.inSync()
		mark, lists := f.mark(), server.listed(slicesPath)

		server.setFault(func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		})
		server.drop()
		server.remove(servicesPath, aService("gone", "10.96.0.1"))
		server.put(servicesPath, aService("changed", "10.96.0.3"), aService("new", "10.96.0.4"))
		server.compact()
		f.eventually("a failure", func() bool { return !f.source.Connected() })
		server.setFault(nil)

		f.hears("service default/new [10.96.0.4]")
		f.eventually("another list of slices", func() bool { return server.listed(slicesPath) > lists })
		f.eventually("being connected", f.source.Connected)
		want := [][]string{{"no service default/gone", "service default/changed [10.96.0.3]", "service default/new [10.96.0.4]"}}
		if diff := cmp.Diff(want, f.since(mark)); diff != "" {
			t.Errorf("updates (-want +got)\n%s", diff)
		}
		if f.timesSynced() != 1 {
			t.Errorf("said %d times that it is in sync", f.timesSynced())
		}
	})
}

func TestOutageIsLoggedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		f := follow(t, server, nil)
		f.inSync()
		var requests atomic.Int32
		server.setFault(func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		})
		server.drop()
		f.eventually("many failures", func() bool { return requests.Load() > 50 })
		status := f.source.Status()
		if status.Connected || status.Reason == nil || !strings.Contains(status.Reason.Error(), "the answer is InternalError") {
			t.Errorf("the status does not report the failure: %+v", status)
		}
		server.setFault(nil)
		f.eventually("being connected", f.source.Connected)
		for _, text := range []string{"Cannot reach the API server", "Connected to the API server again"} {
			if lines := f.logged(text); len(lines) != 1 {
				t.Errorf("%q is logged %d times:\n%s", text, len(lines), strings.Join(lines, "\n"))
			}
		}
	})
}

func TestServerRestartIsSurvived(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		server.put(servicesPath, aService("stays", "10.96.0.1"), aService("goes", "10.96.0.2"))
		f := follow(t, server, nil)
		f.inSync()
		mark := f.mark()
		server.stop()
		server.remove(servicesPath, aService("goes", "10.96.0.2"))
		f.eventually("a failure", func() bool { return !f.source.Connected() })
		server.start()
		f.hears("no service default/goes")
		f.eventually("being connected", f.source.Connected)
		server.put(servicesPath, aService("new", "10.96.0.3"))
		f.hears("service default/new [10.96.0.3]")
		want := [][]string{{"no service default/goes"}, {"service default/new [10.96.0.3]"}}
		if diff := cmp.Diff(want, f.since(mark)); diff != "" {
			t.Errorf("updates (-want +got)\n%s", diff)
		}
	})
}

// TestBadAnswersDelayTheStartOnly lets the first requests go wrong in every way.
func TestBadAnswersDelayTheStartOnly(t *testing.T) {
	write := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(text))
		}
	}
	for name, fault := range map[string]http.HandlerFunc{
		"no answer": hangUp,
		"garbage":   write("\x00\x01garbage"),
		"another kind of object": write(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5"},` +
			`"items":[{"metadata":{"name":"x"}}]}`),
		"some JSON": write(`{"status":"ok"}`),
		"half an answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			write(`{"kind":"ServiceList","apiVersion":"v1","items":[`)(w, r)
		},
		"an answer that never ends": func(w http.ResponseWriter, r *http.Request) {
			write(`{"kind":"ServiceList","apiVersion":"v1","items":[`)(w, r)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
		"internal error": func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		},
		"overload": func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		},
		"forbidden": func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, server *apiServer) { startBadly(t, server, fault) })
		})
	}
}

func startBadly(t *testing.T, server *apiServer, fault http.HandlerFunc) {
	server.put(servicesPath, aService("web", "10.96.0.1"))
	var bad atomic.Bool
	bad.Store(true)
	server.setFault(func(w http.ResponseWriter, r *http.Request) {
		// A stream that was opened is left to its own timeout.
		if bad.Load() && r.URL.Path == servicesPath && r.URL.Query().Get("watch") == "" {
			fault(w, r)
			return
		}
		if bad.Load() && r.URL.Path == servicesPath {
			refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
			return
		}
		server.answer(w, r)
	})
	f := follow(t, server, func(o *Options) { o.listTimeout = testkit.Scaled(200 * time.Millisecond) })
	f.eventually("a failure", func() bool { return f.source.Status().Reason != nil })
	if !slices.Contains(f.source.Status().Waiting, "Service") || f.timesSynced() != 0 {
		t.Error("in sync without Services")
	}
	bad.Store(false)
	f.inSync()
	if !f.heard("service default/web [10.96.0.1]") {
		t.Error("the Service is missing")
	}
	f.eventually("being connected", f.source.Connected)
}

// TestGarbageInAWatchLosesNothing breaks a stream in the middle of an event.
func TestGarbageInAWatchLosesNothing(t *testing.T) {
	for name, garbage := range map[string]string{
		"no JSON":             "}{\n",
		"another kind":        `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"}}}` + "\n",
		"half an event":       `{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1",`,
		"expired":             string(eventOf("ERROR", metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 410, Reason: "Expired"})),
		"a failure":           string(eventOf("ERROR", metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 500, Reason: "InternalError"})),
		"an unknown event":    `{"type":"MAYBE","object":{"kind":"Service","apiVersion":"v1"}}` + "\n",
		"an end without word": "",
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, server *apiServer) {
				f := follow(t, server, nil)
				f.inSync()
				var sent atomic.Bool
				server.setFault(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == servicesPath && r.URL.Query().Get("watch") == "true" && sent.CompareAndSwap(false, true) {
						_, _ = w.Write([]byte(garbage))
						return
					}
					server.answer(w, r)
				})
				f.eventually("the garbage", func() bool {
					server.drop() // a request may have been on its way to the server's own answer
					return sent.Load()
				})
				server.put(servicesPath, aService("web", "10.96.0.1"))
				f.hears("service default/web [10.96.0.1]")
				f.eventually("being connected", f.source.Connected)
			})
		})
	}
}

// A server that has no version that it is asked for, which it says in either of two ways, is
// asked again at once only once.
func TestExpiredVersionsAreAskedForWithPauses(t *testing.T) {
	for name, expire := range map[string]func(http.ResponseWriter){
		"answer": func(w http.ResponseWriter) { refuse(w, http.StatusGone, metav1.StatusReasonExpired) },
		"event": func(w http.ResponseWriter) {
			status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(eventOf("ERROR", status))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, server *apiServer) {
				var watches, lists atomic.Int32
				server.setFault(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Query().Get("watch") == "" {
						lists.Add(1)
						server.answer(w, r)
						return
					}
					watches.Add(1)
					expire(w)
				})
				f := follow(t, server, func(o *Options) { o.retry = wait.Backoff{Duration: time.Hour, Factor: 1, Steps: 3} })
				f.eventually("watches that fail", func() bool { return watches.Load() >= 4 }) // of four kinds
				for range 300 {                                                               // the time of so many requests
					response, err := http.Get(server.server.URL + servicesPath)
					if err != nil {
						t.Fatal(err)
					}
					response.Body.Close()
				}
				if n := watches.Load() + lists.Load() - 300; n > 20 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}
