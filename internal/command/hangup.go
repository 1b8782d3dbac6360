package command

import "context"

// reload asks those who read files to read them again. Each channel holds one wish.
type reload struct{ config, manifests chan struct{} }

func newReload() reload { return reload{make(chan struct{}, 1), make(chan struct{}, 1)} }

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
			wish(p.reload.config)
		}
		if manifests != "" {
			wish(p.reload.manifests)
		}
	}
}

// wish leaves a wish, unless there is one already.
func wish(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
