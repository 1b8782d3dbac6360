package proxy

import (
	"context"

	"sluice/internal/base/notify"
)

// reload requests that files be read again.
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
