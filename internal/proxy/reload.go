package proxy

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/go-logr/logr"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"sluice/internal/base/notify"
	"sluice/internal/config"
)

// errRestart ends the process if --exit-on-config-change is set.
var errRestart = errors.New("the configuration changed in a way that needs a restart, and --exit-on-config-change is set")

// followConfig applies a changed configuration file without affecting traffic. What
// needs a restart is logged and stays as it is.
func (p *proxy) followConfig(ctx context.Context) error {
	log := p.logger.WithName("config")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := p.options.Flags.Watch(ctx, p.settings, config.WatchOptions{
		Logger: log,
		Clock:  p.clock,
		Reload: p.reload.config,
		Noted:  func(s config.FileState) { p.configFile.Store(&s) },
		Changed: func(u *config.Update) {
			logUpdate(log, u)
			if len(u.Restart) > 0 && p.options.ExitOnConfigChange {
				cancel(errRestart)
				return
			}
			p.reconfigure(u.InForce)
		},
	})
	if errors.Is(context.Cause(ctx), errRestart) {
		return errRestart
	}
	return err
}

func logUpdate(log logr.Logger, u *config.Update) {
	for _, c := range u.Live {
		log.Info("Configuration changed", "change", c.String())
	}
	for _, c := range u.Restart {
		log.Info("Configuration changed, but this needs a restart of the proxy", "change", c.String(), "reason", c.Restart)
	}
	if u.Blocked != nil {
		log.Error(u.Blocked, "The new configuration file is invalid in the current mode: none of it takes effect before a restart")
	}
}

func (p *proxy) reconfigure(s *config.Settings) {
	p.hostSetup.tune(s)
	p.engine.SetPlanConfig(s.Plan)
	p.engine.SetPeriods(s.MinSyncPeriod, s.SyncPeriod)
	p.servers.set(s)
	logging := &s.Configuration.Logging
	if err := setVerbosity(uint32(logging.Verbosity), logsapi.VModuleConfigurationPflag(&logging.VModule).String()); err != nil {
		p.logger.Error(err, "The verbosity of the log stays as it was")
	}
}

// setVerbosity changes how much is logged. klog can only do that by its flags.
func setVerbosity(level uint32, vmodule string) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := flags.Set("v", fmt.Sprint(level)); err != nil {
		return fmt.Errorf("set the verbosity: %w", err)
	}
	if err := flags.Set("vmodule", vmodule); err != nil {
		return fmt.Errorf("set the verbosity by module: %w", err)
	}
	return nil
}

type reload struct{ config, manifests notify.Signal }

func newReload() reload { return reload{notify.NewSignal(), notify.NewSignal()} }

// followSIGHUP requests that the files be read again on each SIGHUP, until ctx
// ends. Changes are noticed anyway, but this way the result is always logged.
func (p *proxy) followSIGHUP(ctx context.Context) {
	log := p.logger.WithName("reload")
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.options.SIGHUP:
		}
		file, manifests := p.options.Flags.ConfigFile, p.options.Manifests
		if file == "" && manifests == "" {
			log.Info("SIGHUP: there is nothing to read again: there is no configuration file, and changes at the API server are watched")
			continue
		}
		log.Info("SIGHUP: reading files again", "config", file, "manifests", manifests)
		if file != "" {
			p.reload.config.Notify()
		}
		if manifests != "" {
			p.reload.manifests.Notify()
		}
	}
}
