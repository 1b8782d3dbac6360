package proxy

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/pflag"
	apiversion "k8s.io/apimachinery/pkg/version"

	"sluice/internal/config"
	"sluice/internal/source"
	"sluice/internal/source/host"
)

// Options are what is not part of the configuration.
type Options struct {
	// Flags are the configuration, and FlagSet has all flags for /flagz.
	Flags   *config.Flags
	FlagSet *pflag.FlagSet
	// Build is the version that is reported to the cluster.
	Build apiversion.Info
	// Manifests is where Services come from instead of an API server, if it is not empty.
	Manifests string
	// Sandbox leaves the kernel alone.
	Sandbox bool
	// ControlSocket is the path of the control socket, empty for none.
	ControlSocket string
	// Page shows a page to browsers: on PageAddress or, if that is empty, on the metrics
	// server, for requests to a loopback address.
	Page        bool
	PageAddress string
	// ExitOnConfigChange exits, as upstream does, when the configuration file changes
	// in a way that needs a restart.
	ExitOnConfigChange bool
	// ResetRemovedEndpoints resets TCP connections to endpoints that no longer serve.
	ResetRemovedEndpoints bool
	// EjectFailingEndpoints leaves out endpoints that do not answer for a while, unless their Service
	// says otherwise.
	EjectFailingEndpoints bool
	// DrainTimeout is how long connections of another kube-proxy's IPVS may last.
	DrainTimeout time.Duration
	// UDPTimeout and ShutdownGrace are for modes in which the proxy itself forwards
	// connections: how long idle clients of UDP keep their endpoint, and how long
	// connections may last when the process is asked to end.
	UDPTimeout, ShutdownGrace time.Duration
	// ServiceMetricsLimit is how many Services have metrics of their own at most.
	ServiceMetricsLimit uint
	// NodeCondition keeps up a condition of the Node, and StartupTaint is the key of a taint that is
	// removed from it, when the proxy is ready.
	NodeCondition bool
	StartupTaint  string
	// SIGHUP receives that signal.
	SIGHUP <-chan os.Signal
	// Serving is called when the proxy begins to serve, with how long connections through
	// the process may last when it is asked to end.
	Serving func(grace time.Duration)
}

// Settings resolves the command line on this node.
func (o *Options) Settings() (*config.Settings, error) {
	s, err := o.Flags.Settings()
	if err != nil {
		return nil, err
	}
	s.Plan.Eject = o.EjectFailingEndpoints
	s.Plan.NodeName, err = host.NodeName(s.HostnameOverride)
	return s, err
}

// ReadFor returns what the sources of a proxy with these settings must know of it.
func ReadFor(s *config.Settings) source.Proxy {
	return source.Proxy{NodeName: s.Plan.NodeName, AllNodes: s.Plan.DirectReturn, ServiceProxyName: s.ServiceProxyName, AllServices: s.AllServices}
}

// OwnPageAddress returns the page's own address, invalid if it has none.
func (o *Options) OwnPageAddress(metrics netip.AddrPort) (netip.AddrPort, error) {
	if !o.Page || o.PageAddress == "" {
		return netip.AddrPort{}, nil
	}
	at, err := netip.ParseAddrPort(o.PageAddress)
	if err != nil {
		return at, fmt.Errorf("--page-bind-address: %q is not an IP address with a port (use one such as 127.0.0.1:10247 or [::1]:10247)", o.PageAddress)
	}
	if at.Port() == metrics.Port() && (at.Addr() == metrics.Addr() || at.Addr().IsUnspecified() || metrics.Addr().IsUnspecified()) {
		return at, fmt.Errorf("--page-bind-address: %v is taken by the metrics on %v (use another port, or leave it out to have the page there, on loopback only)", at, metrics)
	}
	return at, nil
}
