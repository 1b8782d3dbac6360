package fakeapi

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault answers a request like a failing server; next answers it normally.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// SetFault makes a fault answer all further requests, nil for none. Requests in
// flight continue: Disconnect ends them.
func (s *Server) SetFault(f Fault) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.fault = f
}

// Disconnect closes all connections.
func (s *Server) Disconnect() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for c := range s.conns {
		_ = c.Close() // the client may have been first
	}
}

// Faults are the failures of API servers, and of proxies in front of them.
var Faults = map[string]Fault{
	"answers 500": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	},
	"answers 429": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	},
	"hangs": func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		<-r.Context().Done()
	},
	"is slow": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		select {
		case <-r.Context().Done():
		case <-time.After(400 * time.Millisecond):
			next.ServeHTTP(w, r)
		}
	},
	"says that watches are too old": onWatches(func(w http.ResponseWriter) {
		refuse(w, http.StatusGone, metav1.StatusReasonExpired)
	}),
	"closes watches": onWatches(func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusOK)
	}),
	"sends lists in drips": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isWatch(r) {
			next.ServeHTTP(w, r)
			return
		}
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, r)
		w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
		const drips = 20
		for drip := range slices.Chunk(whole.Body.Bytes(), whole.Body.Len()/drips+1) {
			_, _ = w.Write(drip)
			w.(http.Flusher).Flush()
			time.Sleep(time.Second / drips)
		}
	},
	"breaks off in the middle": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isWatch(r) {
			panic(http.ErrAbortHandler) // the way to break a connection off
		}
		whole := httptest.NewRecorder()
		whole.Body = &bytes.Buffer{}
		next.ServeHTTP(whole, r)
		w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
		_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
}

// onWatches applies a fault to watches only.
func onWatches(answer func(http.ResponseWriter)) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isWatch(r) {
			answer(w)
			return
		}
		next.ServeHTTP(w, r)
	}
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }
