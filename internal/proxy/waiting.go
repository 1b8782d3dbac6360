package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/answer/control"
	"sluice/internal/answer/question"
	"sluice/internal/answer/status"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/kernel/instancelock"
	"sluice/internal/model"
	"sluice/internal/observe/health"
	"sluice/internal/plan"
)

// acquireInstanceLock waits until no other proxy programs this node. Meanwhile the
// health endpoints report that.
func (p *proxy) acquireInstanceLock(ctx context.Context, name instancelock.Name) (*instancelock.Lock, error) {
	w := &waiting{proxy: p, since: p.clock.Now()}
	serving, stop := context.WithCancel(ctx)
	defer w.servers.Wait()
	defer stop()
	begin := sync.OnceFunc(func() { w.serve(serving) })
	return name.Acquire(ctx, p.logger.WithName("host"), p.clock, func(holder instancelock.Holder) {
		w.holder.Store(int64(holder))
		begin()
	})
}

func (p *proxy) instance() instancelock.Name { return instancelock.Name(p.settings.Instance) }

// waiting is the proxy while another one programs the node: only servers that
// report it.
type waiting struct {
	*proxy
	since   time.Time
	holder  atomic.Int64 // an instancelock.Holder
	servers sync.WaitGroup
}

func (w *waiting) reason() string {
	return "waiting for " + instancelock.Holder(w.holder.Load()).String() + ", which programs this node, to end"
}

// serve starts the servers, which run until ctx ends. Usually the other proxy has
// their addresses: they retry until these are free.
func (w *waiting) serve(ctx context.Context) {
	if at := w.settings.Serving.Health; at.IsValid() {
		server := health.NewProxy(health.ProxyOptions{
			Address:  at.String(),
			Families: w.families(ctx),
			Status:   func() engine.Summary { return engine.Summary{} },
			Waiting:  w.reason,
			Logger:   w.logger.WithName("health"),
			Clock:    w.clock,
		})
		w.servers.Go(func() { _ = server.Run(ctx) }) // it never fails without HardFail
	}
	if w.options.ControlSocket != "" {
		w.servers.Go(func() { _ = w.answer().Run(ctx) }) // it never fails
	}
}

// families are those to listen in, as far as is known before the proxy works.
func (w *waiting) families(ctx context.Context) []model.Family {
	config := plan.Config{NoIPv6: w.hostSetup.lacksIPv6(ctx) != ""}
	return config.Families()
}

// answer returns the control server, which answers everything but the status with an
// error.
func (w *waiting) answer() *control.Server {
	server := control.New(control.Options{Path: w.options.ControlSocket, Logger: w.logger.WithName("control"), Clock: w.clock})
	question.Status.Serve(server, func(context.Context, *question.None) (*status.Report, error) {
		return status.WaitingReport(w.statusOptions(), w.since, w.reason()), nil
	})
	server.Handle("/", control.Unavailable(func() error { return errors.New("this kube-proxy does nothing yet: it is " + w.reason()) }))
	return server
}

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
