package telemetry

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/prometheus/slis"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/clock"

	"sluice/internal/base/httpserver"
)

// answerTimeout is how long an answer may take. The handlers of profiles extend it.
const answerTimeout = time.Minute

// ServerOptions configures a Server.
type ServerOptions struct {
	// Address is where to listen, as host and port. The unspecified IPv6 address
	// means all addresses of both families.
	Address string
	// NoIPv6 is set if IPv6 is switched off on this machine.
	NoIPv6 bool
	// HardFail ends Run when it cannot listen. Otherwise it retries.
	HardFail bool
	// Failed is called when it cannot listen, the first time and when the reason
	// changes; it may be nil.
	Failed func(error)

	// Metrics and More are served at /metrics, and Refresh is called before. More and
	// Refresh may be nil.
	Metrics metrics.Gatherer
	Refresh func()
	More    Source

	Mode string
	// ModeReason is why the mode is this one, empty if it was configured.
	ModeReason string
	Version    string
	// Config returns the current configuration, for /configz.
	Config func() *v1alpha1.KubeProxyConfiguration
	// Flags are served at /flagz; nil for no such page.
	Flags *pflag.FlagSet
	// Statusz enables /statusz.
	Statusz bool
	// Page serves all other paths, on loopback addresses only; nil for nothing.
	Page http.Handler
	// Profiling enables the pages below /debug.
	Profiling bool
	// Hosts are the host names, beside IP addresses and localhost, by which pages
	// other than metrics and pings are served.
	Hosts []string

	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
}

// Server serves metrics and other pages.
type Server struct {
	ServerOptions
	started time.Time
	listen  func(network, address string) (net.Listener, error)
}

// NewServer returns a Server that serves nothing until Run.
func NewServer(o ServerOptions) *Server {
	o.Clock = cmp.Or[clock.Clock](o.Clock, clock.RealClock{})
	return &Server{ServerOptions: o, started: o.Clock.Now(), listen: httpserver.Listener(!o.NoIPv6)}
}

// Run serves until ctx ends, and then returns nil.
func (s *Server) Run(ctx context.Context) error {
	server := httpserver.Server{
		Name: "metrics", Address: s.Address, Flag: "--metrics-bind-address", Handler: s.Handler(), AnswerTimeout: answerTimeout,
		HardFail: s.HardFail, Failed: s.Failed, Listen: s.listen, Logger: s.Logger, Clock: s.Clock,
	}
	return server.Run(ctx)
}

// component is the name of the proxy on its pages and in Events.
const component = "kube-proxy"

// maxVerbosityBytes is more than a log level needs.
const maxVerbosityBytes = 64

// Handler answers on all paths of the server. Metrics and pings are served by any
// host name, the rest is protected from websites by httpserver.OwnHosts.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", s.metricsPage())
	slis.SLIMetricsWithReset{}.Install(mux)
	mux.HandleFunc("/healthz", pingPage)
	mux.HandleFunc("/healthz/ping", pingPage)
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, s.Mode)
	})
	own := func(page http.Handler) http.Handler { return httpserver.OwnHosts(page, s.Hosts...) }
	mux.Handle("/configz", own(http.HandlerFunc(s.configPage)))
	if s.Flags != nil {
		mux.Handle("/flagz", own(s.flagsPage()))
	}
	if s.Statusz {
		mux.Handle("/statusz", own(s.statusPage()))
	}
	if s.Page != nil {
		mux.Handle("/", onLoopback(own(s.Page)))
	}
	if s.Profiling {
		debug := own(debugPages())
		for _, path := range []string{"/debug/pprof", "/debug/pprof/", "/debug/flags", "/debug/flags/"} {
			mux.Handle(path, debug)
		}
	}
	return mux
}

// onLoopback serves a page on connections to loopback addresses only, which the kernel
// accepts from this machine only.
func onLoopback(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if !ok || !at.IP.IsLoopback() {
			http.NotFound(w, r)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// paths are those that /statusz lists.
func (s *Server) paths() []string {
	paths := []string{"/configz"}
	if s.Flags != nil {
		paths = append(paths, "/flagz")
	}
	return append(paths, "/healthz", "/metrics", "/proxyMode")
}

// pingPage shows that the process answers. The health of the proxy is served by
// another server.
func pingPage(w http.ResponseWriter, r *http.Request) {
	_ = slis.ObserveHealthcheck(r.Context(), "ping", "healthz", slis.Success) // it never fails
	if r.URL.Query().Has("verbose") {
		writeText(w, http.StatusOK, "[+]ping ok\nhealthz check passed\n")
		return
	}
	writeText(w, http.StatusOK, "ok")
}

// configPage serves the configuration under the name of its API group.
func (s *Server) configPage(w http.ResponseWriter, _ *http.Request) {
	config := *s.Config()
	config.Kind, config.APIVersion = "KubeProxyConfiguration", v1alpha1.SchemeGroupVersion.String()
	body, err := json.Marshal(map[string]any{v1alpha1.GroupName: config})
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	write(w, http.StatusOK, "application/json", body)
}

func debugPages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	flags := func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "Flags that can be set by PUT while the process runs:\n/debug/flags/v\n")
	}
	mux.HandleFunc("/debug/flags", flags)
	mux.HandleFunc("/debug/flags/", flags)
	mux.HandleFunc("/debug/flags/v", verbosityPage)
	return mux
}

func verbosityPage(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		writeText(w, http.StatusNotAcceptable, "unsupported http method: use PUT")
		return
	}
	level, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxVerbosityBytes))
	if err != nil {
		writeText(w, http.StatusBadRequest, "cannot read the level: "+err.Error())
		return
	}
	said, err := logs.GlogSetter(string(level))
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	writeText(w, http.StatusOK, said)
}

func writeText(w http.ResponseWriter, status int, text string) {
	write(w, status, "text/plain; charset=utf-8", []byte(text))
}

// write answers, and keeps browsers from guessing the type.
func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the client is gone
}
