package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"sluice/internal/config"
	"sluice/internal/conntrack"
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/engine"
	"sluice/internal/health"
	"sluice/internal/host"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/source/manifest"
)

// source hands what it finds out to a sink until its context ends.
type source interface {
	Run(context.Context, model.Sink) error
}

// serve runs the proxy until ctx ends, and leaves the kernel as it is then.
func serve(ctx context.Context, logger logr.Logger, settings *config.Settings, manifests string) (err error) {
	clk := clock.RealClock{}
	kernel, err := open(logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kernel.Close()) }()

	logger.Info("Starting", "version", version(), "node", settings.Plan.NodeName, "mode", settings.Mode, "manifests", manifests)
	services := health.NewServices(health.ServicesOptions{Logger: logger.WithName("health"), Clock: clk})
	var eng *engine.Engine
	tracker := conntrack.New(conntrack.Options{
		Logger: logger.WithName("conntrack"), Clock: clk,
		Desired: func(read func(*plan.Desired)) { eng.Snapshot(read) },
	})
	var reconciles uint64
	eng = engine.New(engine.Options{
		Planner:       plan.New(settings.Plan),
		Dataplane:     kernel,
		Logger:        logger.WithName("engine"),
		Clock:         clk,
		MinSyncPeriod: settings.MinSyncPeriod,
		SyncPeriod:    settings.SyncPeriod,
		OnCommit: func(change *plan.Change, result dataplane.Result) {
			services.OnCommit(change, result)
			before := reconciles
			reconciles = eng.Status().Reconciles
			tracker.Committed(change, result, reconciles != before)
		},
	})
	err = follow(ctx, eng, map[string]source{
		"host": host.New(host.Options{Logger: logger.WithName("host"), Clock: clk}),
		"manifests": manifest.New(manifest.Options{
			Path: manifests, NodeName: settings.Plan.NodeName, Logger: logger.WithName("manifests"), Clock: clk,
		}),
	}, tracker.Run, func(ctx context.Context) error {
		return services.Run(ctx, eng, health.Programming(eng.Status, clk, 2*settings.SyncPeriod))
	})
	if err == nil {
		logger.Info("Ending, the rules stay in place")
	}
	return err
}

// follow runs the engine, its sources and its observers until ctx ends or one
// of them fails.
func follow(ctx context.Context, eng *engine.Engine, sources map[string]source, observers ...func(context.Context) error) error {
	// The engine must know of all sources before the first of them is in sync.
	sinks := make(map[string]model.Sink, len(sources))
	for name := range sources {
		sinks[name] = eng.AddSource(name)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return eng.Run(ctx) })
	for name, s := range sources {
		group.Go(func() error {
			if err := s.Run(ctx, sinks[name]); err != nil {
				return fmt.Errorf("source %s: %w", name, err)
			}
			return nil
		})
	}
	for _, run := range observers {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

// cleanup removes what the proxy left in the kernel.
func cleanup(ctx context.Context, logger logr.Logger) (err error) {
	kernel, err := open(logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kernel.Close()) }()
	if err := kernel.Cleanup(ctx); err != nil {
		return fmt.Errorf("remove the rules: %w", err)
	}
	logger.Info("Removed all rules of this proxy")
	return nil
}

func open(logger logr.Logger) (dataplane.Dataplane, error) {
	kernel, err := nftables.New(nftables.Options{Logger: logger.WithName("nftables")})
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	return kernel, nil
}
