package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/answer/explain"
	"sluice/internal/answer/status"
	"sluice/internal/base/httpserver"
	"sluice/internal/base/printable"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/observe/history"
	"sluice/internal/observe/verdict"
)

// maxConcurrent is how many requests are answered concurrently. Others get 503.
const maxConcurrent = 4

// Options configures a Handler.
type Options struct {
	Engine *engine.Engine
	Status func() *status.Report
	// Explain answers questions, and tries connections.
	Explain func(context.Context, explain.Question) (*explain.Reply, error)
	// Judge returns who judges Services of a view.
	Judge func(engine.View) *verdict.Judge
	// Traffic reads the counters of the kernel; nil in a mode that has none.
	Traffic dataplane.TrafficFunc
	// Count counts connections by endpoint; nil if that is not possible.
	Count CountFunc
	// Events returns what happened, the oldest first; nil if nobody remembers.
	Events func(history.Query) (events []history.Event, last uint64)

	Logger logr.Logger
	Clock  clock.WithDelayedExecution // nil for the real one
}

// Handler answers the requests of a browser.
type Handler struct {
	Options
	mux   *http.ServeMux
	limit chan struct{}

	meter       *meter
	recorder    recorder
	connections connectionCounts
	verdicts    verdicts
	trials      trials

	// last and verdicts are caches, cleared by expiry.
	last   atomic.Pointer[cluster]
	expiry clock.Timer
}

// keepFor is how long after the last request the cache is kept.
const keepFor = time.Minute

// New returns a Handler.
func New(o Options) *Handler {
	o.Clock = cmp.Or[clock.WithDelayedExecution](o.Clock, clock.RealClock{})
	h := &Handler{
		Options:     o,
		mux:         http.NewServeMux(),
		meter:       newMeter(o.Traffic, o.Logger, o.Clock),
		limit:       make(chan struct{}, maxConcurrent),
		connections: connectionCounts{count: o.Count, log: o.Logger, clock: o.Clock},
	}
	h.expiry = o.Clock.AfterFunc(keepFor, func() {
		h.last.Store(nil)
		h.verdicts.forget()
	})
	h.mux.Handle("GET /{$}", h.limited(h.overview))
	h.mux.Handle("GET /service", h.limited(h.service))
	h.mux.Handle("GET /try", http.HandlerFunc(notByGet))
	h.mux.Handle("POST /try", httpserver.SameOrigin(http.HandlerFunc(h.try)))
	h.mux.Handle("GET /map", h.limited(h.nodeMap))
	h.mux.Handle("GET /problems", h.limited(h.problems))
	h.mux.Handle("GET /events", h.limited(h.events))
	h.mux.Handle("GET /", h.limited(h.missing))
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		h.mux.Handle("GET /page/"+name, newAsset(name))
	}
	return h
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin") // with none at all, browsers hide the origin of our own forms
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.mux.ServeHTTP(w, r)
}

// answer is a page: its template and data.
type answer struct {
	status   int
	template *template.Template
	view     any
}

// limited limits concurrent requests. The slot is free again before the answer is sent,
// because a slow client may take long to read it.
func (h *Handler) limited(compose func(*http.Request) answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		select {
		case h.limit <- struct{}{}:
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many concurrent requests. Try again in a second.", http.StatusServiceUnavailable)
			return
		}
		status, body, err := h.render(r, compose)
		if err != nil {
			h.Logger.Error(err, "Cannot show a page", "path", r.URL.Path)
			http.Error(w, "The page cannot be shown; the log of the proxy says why.", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write(body) // fails only if the client is gone
	})
}

func (h *Handler) render(r *http.Request, compose func(*http.Request) answer) (status int, body []byte, err error) {
	defer func() { <-h.limit }()
	a := compose(r)
	var b bytes.Buffer
	if err := a.template.Execute(&b, a.view); err != nil {
		return 0, nil, fmt.Errorf("render %s: %w", a.template.Name(), err)
	}
	return a.status, b.Bytes(), nil
}

// longCommit is how long a commit takes before its progress is shown. That of the
// first one is always shown.
const longCommit = time.Second

// frame is the part that all pages have in common.
type frame struct {
	Title     string
	Report    *status.Report
	Condition status.Condition
	// Progress is that of a commit that takes long, nil for none.
	Progress *progress
	Time     string
}

// progress is the progress of a commit.
type progress struct {
	Done, Total, Percent int
	Since                string
}

func newFrame(title string, r *status.Report) frame {
	return frame{
		Title:     title,
		Report:    r,
		Condition: r.Condition(),
		Progress:  progressOf(r),
		Time:      r.Now.UTC().Format("15:04:05 UTC"),
	}
}

// missing says that there is no such page, and where to go.
func (h *Handler) missing(*http.Request) answer {
	return answer{http.StatusNotFound, missingTemplate, newFrame("No such page", h.Status())}
}

func condition(level status.Level, word, text string) status.Condition {
	return status.Condition{Level: level, Word: word, Text: text}
}

func progressOf(r *status.Report) *progress {
	w := r.Writing
	if w == nil || w.Total == 0 || r.Commits > 0 && r.Now.Sub(w.Since) < longCommit {
		return nil
	}
	done := min(w.Done, w.Total)
	return &progress{done, w.Total, 100 * done / w.Total, duration(r.Now.Sub(w.Since))}
}

//go:embed assets
var assets embed.FS

var (
	overviewTemplate = parse("overview.html")
	serviceTemplate  = parse("service.html")
	mapTemplate      = parse("map.html")
	problemsTemplate = parse("problems.html")
	eventsTemplate   = parse("events.html")
	missingTemplate  = parse("missing.html")
)

// parse parses a page and the layout of all pages, which are embedded in the binary.
func parse(name string) *template.Template {
	funcs := template.FuncMap{"text": printable.Escape, "count": count[int], "link": serviceLink}
	return template.Must(template.New("layout.html").Funcs(funcs).ParseFS(assets, "assets/layout.html", "assets/parts.html", "assets/"+name))
}

// asset is a file of the page.
type asset struct {
	name, kind, tag string
	content         []byte
}

func newAsset(name string) http.Handler {
	content, err := assets.ReadFile("assets/" + name)
	if err != nil {
		return http.NotFoundHandler()
	}
	sum := sha256.Sum256(content)
	return &asset{
		name:    name,
		kind:    mime.TypeByExtension(path.Ext(name)),
		tag:     `"` + hex.EncodeToString(sum[:8]) + `"`,
		content: content,
	}
}

// ServeHTTP makes browsers revalidate their copy each time: the next version may have
// another file.
func (a *asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.tag)
	http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.content))
}
