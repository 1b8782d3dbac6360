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

	"sluice/internal/httpserver"
)

// retryAfter is the pause between two tries to listen.
const retryAfter = 5 * time.Second

// What one client may use of us. Profiles take the time that was asked for;
// their handlers move these limits for themselves.
const (
	headerTimeout   = 5 * time.Second
	requestTimeout  = 10 * time.Second
	answerTimeout   = time.Minute
	idleTimeout     = 2 * time.Minute // longer than between two scrapes
	mostHeaderBytes = 16 << 10
	grace           = 2 * time.Second // for answers under way at the end
)

// ServerOptions is what a Server is made of.
type ServerOptions struct {
	// Address is where to listen, as host and port. The unspecified address of
	// IPv6 stands for all addresses of both families.
	Address string
	// NoIPv6 says that this machine cannot do IPv6.
	NoIPv6 bool
	// HardFail ends Run when it cannot listen. Otherwise it tries again.
	HardFail bool
	// Failed is told when it cannot listen, the first time and whenever the
	// reason is another; nil if nobody wants to know.
	Failed func(error)

	// Metrics is what /metrics shows, and Refresh is called before, if not nil.
	// More adds to it; nil for nothing.
	Metrics metrics.Gatherer
	Refresh func()
	More    Source

	Mode string
	// ModeReason is why the mode is this one, empty if it was chosen.
	ModeReason string
	Version    string
	// Config returns the configuration that is in force, for /configz.
	Config func() *v1alpha1.KubeProxyConfiguration
	// Flags are what /flagz shows; nil for no such page.
	Flags *pflag.FlagSet
	// Statusz is whether there is a page /statusz.
	Statusz bool
	// Page is what browsers are shown on all other paths, if they come to a
	// loopback address; nil for nothing.
	Page http.Handler
	// Profiling is whether the pages below /debug are there.
	Profiling bool
	// Hosts are the names, beside IP addresses and localhost, by which browsers may
	// ask for what is no metric and no ping.
	Hosts []string

	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
}

// Server serves metrics, and pages for those who look into the proxy.
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
		MaxHeaderBytes:    mostHeaderBytes,
		ErrorLog:          httpserver.ErrorLog(s.Logger),
	}
	return httpserver.Serve(ctx, server, socket, grace)
}
