package proxy

import (
	"context"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/instancelock"
)

// grace is how long connections that go through this process have.
func (p *proxy) grace() time.Duration {
	if _, ok := p.dataplane.(dataplane.Forwarder); ok {
		return p.options.ShutdownGrace
	}
	return 0
}

// finish lets another process take over, and serves to the end what depends on this one.
func (p *proxy) finish(lock *instancelock.Lock) error {
	err := lock.Release()
	r, ok := p.dataplane.(dataplane.Forwarder)
	if !ok {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.grace())
	defer cancel()
	if left := r.Finish(ctx, p.instance().Held); left > 0 {
		p.logger.Info("Connections that go through this process end with it", "connections", left, "grace", p.options.ShutdownGrace)
	}
	return err
}
