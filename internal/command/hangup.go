package command

import (
	"context"

	"sluice/internal/notify"
)

// reload asks those who read files to read them again.
type reload struct{ config, manifests notify.Signal }

func newReload() reload { return reload{notify.NewSignal(), notify.NewSignal()} }

// followHangups has the files read again on each SIGHUP, until ctx ends. They are
// followed anyway; this is for those who want to be sure, and have a word on it.
func (p *proxy) followHangups(ctx context.Context) {
	log := p.logger.WithName("reload")
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.options.hangups:
		}
		file, manifests := p.options.flags.ConfigFile, p.options.manifests
		if file == "" && manifests == "" {
			log.Info("SIGHUP: there is nothing to read again, for there is no configuration file, and the API server tells of changes by itself")
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
