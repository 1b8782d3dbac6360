package web

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/explain"
	"sluice/internal/status"
)

// maxConcurrent is how many answers are made at a time. Whoever comes on top of
// that is told to come again.
const maxConcurrent = 4

// Options is what a Page is made of.
type Options struct {
	Engine  *engine.Engine
	Status  func() *status.Report
	Explain func(context.Context, explain.Question) (*explain.Reply, error)
	// Traffic tells what the kernel counts; nil in a mode that counts nothing.
	Traffic dataplane.TrafficFunc

	Logger logr.Logger
	Clock  clock.WithDelayedExecution // nil for the real one
}

// Page answers the requests of a browser.
type Page struct {
	Options
	mux   *http.ServeMux
	limit chan struct{}

	// What is kept from one look to the next.
	meter  *meter
	last   atomic.Pointer[cluster]
	expiry clock.Timer
}

// keepFor is how long after the last look anything is kept for the next one.
const keepFor = time.Minute

// New returns a Page.
func New(o Options) *Page {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	p := &Page{
		Options: o,
		mux:     http.NewServeMux(),
		meter:   newMeter(o.Traffic, o.Logger, o.Clock),
		limit:   make(chan struct{}, maxConcurrent),
	}
	p.expiry = o.Clock.AfterFunc(keepFor, func() {
		p.meter.forget()
		p.last.Store(nil)
	})
	p.mux.Handle("GET /{$}", p.limited(p.overview))
	p.mux.Handle("GET /service", p.limited(p.service))
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		p.mux.Handle("GET /page/"+name, newAsset(name))
	}
	return p
}

// ServeHTTP answers a request.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	p.mux.ServeHTTP(w, r)
}

// answer is a page to show: what is in it, and the template for that.
type answer struct {
	status   int
	template *template.Template
	view     any
}

// limited bounds how many answers are made at a time. A seat is free again before
// the answer is sent, for that may take as long as whoever asked likes.
func (p *Page) limited(compose func(*http.Request) answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		select {
		case p.limit <- struct{}{}:
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many look at this page at the same time. Try again in a second.", http.StatusServiceUnavailable)
			return
		}
		status, body, err := p.render(r, compose)
		if err != nil {
			p.Logger.Error(err, "Cannot show a page", "path", r.URL.Path)
			http.Error(w, "The page cannot be shown; the log of the proxy says why.", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write(body) // who went away does not want the answer
	})
}

func (p *Page) render(r *http.Request, compose func(*http.Request) answer) (status int, body []byte, err error) {
	defer func() { <-p.limit }()
	a := compose(r)
	var b bytes.Buffer
	if err := a.template.Execute(&b, a.view); err != nil {
		return 0, nil, fmt.Errorf("render %s: %w", a.template.Name(), err)
	}
	return a.status, b.Bytes(), nil
}
