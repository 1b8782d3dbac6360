package proxy

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/answer/web"
	"sluice/internal/config"
	"sluice/internal/observe/health"
	"sluice/internal/observe/telemetry"
)

// servers are the HTTP servers of the process. Their addresses can change while it
// runs.
type servers struct {
	proxy *proxy
	page  *web.Handler // nil for none
	// settings are those in force.
	settings atomic.Pointer[config.Settings]

	mu      sync.Mutex
	changed chan struct{} // closed when the servers must restart
}

func newServers(p *proxy) *servers {
	s := &servers{proxy: p, changed: make(chan struct{})}
	s.settings.Store(p.settings)
	if p.options.Page {
		s.page = p.page()
	}
	return s
}

// set applies other settings.
func (s *servers) set(settings *config.Settings) {
	old := s.settings.Swap(settings)
	if old.Serving == settings.Serving {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// run serves until ctx ends.
func (s *servers) run(ctx context.Context) error {
	for ctx.Err() == nil {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if err := s.serve(ctx, s.settings.Load(), changed); err != nil {
			return err
		}
	}
	return nil
}

// serve serves until ctx ends or the settings change.
func (s *servers) serve(ctx context.Context, settings *config.Settings, changed <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
		return nil
	})
	if at := settings.Serving.Health; at.IsValid() {
		group.Go(func() error { return s.health(settings, at).Run(ctx) })
	}
	if at := settings.Serving.Metrics; at.IsValid() {
		group.Go(func() error { return s.metrics(settings, at).Run(ctx) })
	}
	return group.Wait()
}

func (s *servers) health(settings *config.Settings, at netip.AddrPort) *health.Proxy {
	p := s.proxy
	return health.NewProxy(health.ProxyOptions{
		Address:  at.String(),
		HardFail: settings.Serving.HardFail,
		Families: settings.Plan.Families(),
		Status:   p.engine.Status,
		Leaving:  p.eligibility.Leaving,
		Verdict:  p.verdict,
		Answered: p.metrics.Answered,
		Failed: func(err error) {
			p.recorder.Record(telemetry.FailedToStartProxierHealthcheck(p.settings.Plan.NodeName, err))
		},
		Logger: p.logger.WithName("health"),
		Clock:  p.clock,
	})
}

func (s *servers) metrics(settings *config.Settings, at netip.AddrPort) *telemetry.Server {
	p := s.proxy
	o := telemetry.ServerOptions{
		Address:  at.String(),
		NoIPv6:   settings.Plan.NoIPv6,
		HardFail: settings.Serving.HardFail,
		Failed: func(err error) {
			p.recorder.Record(telemetry.FailedToStartMetricServer(p.settings.Plan.NodeName, err))
		},
		Metrics:    p.registry,
		Refresh:    p.updater.Refresh,
		More:       p.collector,
		Mode:       p.settings.Mode.Name,
		ModeReason: p.reason,
		Version:    strings.TrimPrefix(p.options.Build.GitVersion, "v"), // as upstream writes it there
		Config:     func() *v1alpha1.KubeProxyConfiguration { return s.settings.Load().Configuration },
		Statusz:    settings.Features.Enabled("ComponentStatusz"),
		Profiling:  settings.Serving.Profiling,
		Hosts:      p.hosts(),
		Logger:     p.logger.WithName("metrics"),
		Clock:      p.clock,
	}
	if settings.Features.Enabled("ComponentFlagz") {
		o.Flags = p.options.FlagSet
	}
	if s.page != nil && p.options.PageAddress == "" {
		o.Page = s.page
	}
	return telemetry.NewServer(o)
}
