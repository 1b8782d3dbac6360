package telemetry

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/component-base/metrics"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/clock"

	"sluice/internal/base/httpserver"
)

// retryAfter is the pause between two attempts to listen.
const retryAfter = 5 * time.Second

// Limits of one client. The handlers of profiles extend them.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	answerTimeout  = time.Minute
	idleTimeout    = 2 * time.Minute // longer than the interval of scrapes
	maxHeaderBytes = 16 << 10
	grace          = 2 * time.Second // for answers in flight at shutdown
)

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
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	return &Server{ServerOptions: o, started: o.Clock.Now(), listen: httpserver.Listener(!o.NoIPv6)}
}

// Run serves until ctx ends, and then returns nil.
func (s *Server) Run(ctx context.Context) error {
	handler := s.Handler()
	serve := func(ctx context.Context) error { return s.serve(ctx, handler) }
	return httpserver.Persist(ctx, s.Clock, retryAfter, serve, func(err error) error {
		err = fmt.Errorf("serve metrics on %s: %w", s.Address, err)
		s.Failed(err)
		if s.HardFail {
			return err
		}
		s.Logger.Error(err, "Cannot serve metrics, trying again", "every", retryAfter, "remedy", httpserver.Remedy(err, "--metrics-bind-address"))
		return nil
	})
}

// serve listens and answers until ctx ends or the socket breaks.
func (s *Server) serve(ctx context.Context, handler http.Handler) error {
	socket, err := s.listen("tcp", s.Address)
	if err != nil {
		return err
	}
	s.Logger.V(1).Info("Serving metrics", "address", socket.Addr().String())
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          httpserver.ErrorLog(s.Logger),
	}
	return httpserver.Serve(ctx, server, socket, grace)
}
