package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"
	metricsfeatures "k8s.io/component-base/metrics/features"
	"k8s.io/utils/clock"

	"sluice/internal/base/release"
	"sluice/internal/config"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/kernel/instancelock"
	"sluice/internal/model"
	"sluice/internal/observe/experiment"
	"sluice/internal/observe/health"
	"sluice/internal/observe/history"
	"sluice/internal/observe/nodeproblem"
	"sluice/internal/observe/telemetry"
	"sluice/internal/observe/telemetry/perservice"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
	"sluice/internal/source"
	"sluice/internal/source/host"
	"sluice/internal/source/kubernetes"
	"sluice/internal/source/manifest"
)

// follower passes what it finds to a sink until its context ends.
type follower interface {
	Run(context.Context, model.Sink) error
}

// proxy is everything that runs in the process.
type proxy struct {
	options  *Options
	settings *config.Settings // at start
	// reason is why the mode was selected, empty if it was chosen.
	reason string
	logger logr.Logger
	clock  clock.WithTickerAndDelayedExecution

	client    clientset.Interface // nil without an API server
	cluster   *kubernetes.Source  // nil without an API server
	manifests *manifest.Source    // nil with one
	recorder  telemetry.Recorder
	dataplane dataplane.Dataplane
	lock      *instancelock.Lock
	hostSetup hostSetup
	engine    *engine.Engine

	registry    telemetry.Registry
	metrics     *telemetry.Metrics
	updater     *telemetry.Updater
	collector   *perservice.Collector
	problems    *telemetry.Problems
	services    *health.Services
	eligibility *health.Eligibility
	servers     *servers
	history     *history.History
	fit         nodeproblem.Fit
	// configFile is what is wrong with the configuration file, or the flags.
	configFile atomic.Pointer[config.FileState]
	// draining is what is left of another kube-proxy, nil if nothing is.
	draining atomic.Pointer[dataplane.Draining]

	// experiments are connections that were asked for.
	experiments experiment.Runner

	// memoryLimit is that of the container at start, 0 for none.
	memoryLimit int64
	// reload requests that files be read again.
	reload reload
	// programmed is closed once the kernel has been programmed.
	programmed chan struct{}
}

// Run runs the proxy until ctx ends. The rules stay in the kernel.
func Run(ctx context.Context, logger logr.Logger, settings *config.Settings, o *Options) (err error) {
	p := &proxy{options: o, settings: settings, logger: logger, clock: clock.RealClock{}, reload: newReload(), programmed: make(chan struct{}),
		fit: nodeproblem.Fit{Clock: clock.RealClock{}}}
	p.memoryLimit = respectMemoryLimit(logger, 0)
	giveBackMemory(logger) // that of the initialization of all packages
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go p.followSIGHUP(ctx)
	if err := p.connect(ctx); err != nil {
		return err
	}
	p.reason, err = p.chooseDataplane(ctx, func(m dataplane.Mode) (dataplane.Dataplane, error) {
		return m.Open(ctx, dataplane.Options{
			Logger: logger.WithName(m.Name), ModeSettings: p.settings.ModeSettings,
			Forwarding: dataplane.Forwarding{UDPTimeout: o.UDPTimeout, ResetRemoved: o.ResetRemovedEndpoints,
				Tried: p.tried},
		})
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.dataplane.Close()) }()
	o.Serving(p.grace())
	settings, p.hostSetup = p.settings, newHostSetup(p)
	logger.Info("Starting", "version", o.Build.GitVersion, "node", settings.Plan.NodeName, "mode", settings.Mode.Name,
		"manifests", o.Manifests, "serviceProxyName", settings.ServiceProxyName)
	lock, err := p.acquireInstanceLock(ctx, p.instance())
	if err != nil {
		return endOf(ctx, err)
	}
	p.lock = lock
	defer func() { err = errors.Join(err, p.finish(lock)) }()
	if settings.AllServices {
		former, err := p.acquireInstanceLock(ctx, instancelock.Name(settings.ServiceProxyName))
		if err != nil {
			return endOf(ctx, err)
		}
		defer func() { _ = former.Release() }() // the process ends
	}
	p.recorder.Record(telemetry.Starting(settings.Plan.NodeName))
	p.reportMode()
	if o.Sandbox {
		logger.Info("Serving node ports only: not ClusterIPs, external IPs, load balancer IPs, or SCTP")
	}
	p.learnNode(ctx)
	p.hostSetup.tune(settings)
	p.hostSetup.begin()
	if err := p.assemble(); err != nil {
		return err
	}
	if err := p.run(ctx); err != nil {
		return err
	}
	if o.Sandbox {
		logger.Info("Shutting down, nothing is served any more")
		return nil
	}
	logger.Info("Shutting down, the rules stay in place")
	return nil
}

// tried passes on how the proxy itself connected a client to an endpoint.
func (p *proxy) tried(a dataplane.Attempt) {
	p.experiments.Tried(a)
	p.hostSetup.observed(a)
}

// endOf returns why a proxy ends that waited for another one, nil if it was asked to.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// learnNode adds to the settings what depends on the node and not on the
// configuration.
func (p *proxy) learnNode(ctx context.Context) {
	cfg := &p.settings.Plan
	cfg.RequireNode = p.client != nil // among manifests it may be missing
	if reason := p.hostSetup.lacksIPv6(ctx); reason != "" {
		cfg.NoIPv6 = true
		p.logger.Info("This node does IPv4 only: IPv6 addresses of Services are not served here", "reason", reason)
	}
}

// connect creates the client of the API server, unless there are manifests.
func (p *proxy) connect(ctx context.Context) (err error) {
	if p.options.Manifests != "" {
		p.recorder = telemetry.LogRecorder(p.logger.WithName("events"))
		return nil
	}
	if p.client, err = kubernetes.NewClient(p.settings.Client.Connection, p.settings.Client.Master, release.UserAgent(p.options.Build)); err != nil {
		return fmt.Errorf("connect to the API server: %w; to run without one, set --manifests to a directory of manifests", err)
	}
	p.recorder, err = telemetry.NewAPIRecorder(ctx, p.client, p.uid)
	return err
}

// uid returns the UID of the object of an Event. Nodes need none, and some of their
// Events come before there is an engine.
func (p *proxy) uid(about model.Object) (uid types.UID) {
	if about.Kind == "Node" {
		return ""
	}
	p.engine.Inspect(func(v engine.View) { uid = types.UID(uidIn(v.State, about)) })
	return uid
}

// uidIn returns the UID of an object in a State, "" if it is not there.
func uidIn(state *model.State, about model.Object) string {
	name := model.Name{Namespace: about.Namespace, Name: about.Name}
	switch about.Kind {
	case "Service":
		if s := state.Service(name); s != nil {
			return s.UID
		}
	case "EndpointSlice":
		if s := state.Slice(name); s != nil {
			return s.UID
		}
	}
	return ""
}

// assemble creates the engine and everything that observes it.
func (p *proxy) assemble() (err error) {
	if p.client != nil {
		p.cluster = kubernetes.New(kubernetes.Options{
			Client: p.client, Proxy: ReadFor(p.settings), Logger: p.logger.WithName("kubernetes"), Clock: p.clock,
			ResyncPeriod: p.settings.Client.ResyncPeriod, Room: roomForObjects,
		})
	} else {
		p.manifests = manifest.New(manifest.Options{
			Path: p.options.Manifests, Proxy: ReadFor(p.settings), Logger: p.logger.WithName("manifests"), Clock: p.clock,
			Reload: p.reload.manifests,
		})
	}
	p.engine = engine.New(engine.Options{
		Planner:       plan.New(p.settings.Plan),
		Dataplane:     p.dataplane,
		Logger:        p.logger.WithName("engine"),
		Clock:         p.clock,
		System:        p.settings.Plan.Limits.System,
		MinSyncPeriod: p.settings.MinSyncPeriod,
		SyncPeriod:    p.settings.SyncPeriod,
	})
	if p.settings.Serving.ShowHiddenMetrics {
		metrics.SetShowHidden()
	}
	// The feature gate must be applied before histograms are registered.
	metricsfeatures.ApplyFeatureGates(p.settings.Features)
	p.registry = telemetry.ProcessRegistry()
	p.settings.Features.AddMetrics()
	if p.metrics, err = telemetry.NewMetrics(p.registry, p.settings.Mode, p.settings.Plan.Families()); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	if err := telemetry.RegisterBuild(p.registry, p.options.Build); err != nil {
		return err
	}
	p.configFile.Store(&config.FileState{Path: p.options.Flags.ConfigFile, Warnings: p.settings.Warnings})
	p.updater = telemetry.NewUpdater(telemetry.UpdaterOptions{
		Metrics: p.metrics, Engine: p.engine, Clock: p.clock, Connected: p.connected(), Advisories: p.countAdvisories,
		Verdict: func() verdict.ProxyWord { return p.verdict().Word },
	})
	p.problems = telemetry.NewProblems(telemetry.ProblemsOptions{
		Recorder: p.recorder, Engine: p.engine, Verdicts: p.verdicts, Clock: p.clock,
	})
	p.history = history.New(history.Options{Inspect: p.engine.Inspect, System: p.settings.Plan.Limits.System, Clock: p.clock})
	p.collector = p.newCollector()
	if c, ok := p.dataplane.(dataplane.Counter); ok {
		if err := telemetry.RegisterCounters(p.registry, p.settings.Mode.Counters, p.settings.Plan.Families(), c); err != nil {
			return err
		}
	}
	p.services = health.NewServices(health.ServicesOptions{
		Logger: p.logger.WithName("health"), Clock: p.clock,
		Failed: func(service model.Name, err error) {
			p.recorder.Record(telemetry.FailedToStartServiceHealthcheck(p.settings.Plan.NodeName, service, err))
		},
	})
	p.eligibility = health.NewEligibility(p.engine, p.clock)
	first := sync.OnceFunc(func() { close(p.programmed) })
	p.engine.Observe(p.hostSetup.assemble()...)
	p.engine.Observe(p.services, p.updater, p.collector, p.problems, p.history,
		engine.ObserverFunc(func(c *engine.Commit) {
			if !c.Comparing {
				first()
			}
		}))
	p.servers = newServers(p)
	return nil
}

// run runs everything until ctx ends or a part of it fails.
func (p *proxy) run(ctx context.Context) error {
	// The engine must know of all sources before the first of them is in sync.
	sources := p.sources()
	sinks := make(map[string]model.Sink, len(sources))
	for name := range sources {
		sinks[name] = p.updater.Watch(p.engine.AddSource(name))
		if p.settings.ServiceProxyName != "" {
			sinks[name] = source.Handover(sinks[name], p.clock, source.HandoverTime)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.engine.Run(ctx) })
	for name, s := range sources {
		group.Go(func() error {
			if err := s.Run(ctx, sinks[name]); err != nil {
				return fmt.Errorf("source %s: %w", name, err)
			}
			return nil
		})
	}
	group.Go(func() error { return p.problems.Run(ctx) })
	group.Go(func() error { return p.collector.Run(ctx) })
	group.Go(func() error { return p.history.Run(ctx) })
	group.Go(func() error {
		healthy := health.Programming(p.engine.Status, p.clock)
		return p.services.Run(ctx, p.engine, healthy)
	})
	group.Go(func() error { return p.servers.run(ctx) })
	group.Go(func() error { p.followMemory(ctx, p.memoryLimit); return nil })
	group.Go(func() error { return p.servePage(ctx) })
	if page := p.servers.page; page != nil {
		group.Go(func() error { return page.Run(ctx) })
	}
	group.Go(func() error { return p.answerQuestions(ctx) })
	group.Go(func() error { return p.hostSetup.run(ctx) })
	group.Go(func() error { return p.followAdvisories(ctx) })
	if p.options.NodeCondition || p.options.StartupTaint != "" {
		group.Go(func() error { return p.reportToNode(ctx) })
	}
	if p.options.Flags.ConfigFile != "" {
		group.Go(func() error { return p.followConfig(ctx) })
	}
	return group.Wait()
}

func (p *proxy) sources() map[string]follower {
	sources := map[string]follower{"host": host.New(host.Options{Logger: p.logger.WithName("host"), Clock: p.clock})}
	if p.client == nil {
		sources["manifests"] = p.manifests
		return sources
	}
	sources["kubernetes"] = p.cluster
	return sources
}
