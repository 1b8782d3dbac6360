package telemetry

import (
	"cmp"
	"context"
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
