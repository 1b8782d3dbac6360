package command

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"sluice/internal/coexist"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/instancelock"
	"sluice/internal/leftovers"
	"sluice/internal/mode"
	"sluice/internal/model"
	"sluice/internal/status"
	"sluice/internal/sysctl"
	"sluice/internal/telemetry"
)

// lacksIPv6 returns why IPv6 cannot be used on this node, "" if it can.
func lacksIPv6(ctx context.Context, logger logr.Logger, d dataplane.Dataplane) string {
	if reason := sysctl.NoIPv6(sysctl.Options{Logger: logger}); reason != "" {
		return reason
	}
	if c, ok := d.(dataplane.FamilyChecker); ok {
		if err := c.CheckFamily(ctx, model.IPv6); err != nil {
			return err.Error()
		}
	}
	return ""
}

// newNeighbours returns the Watcher of other users of iptables, nil if the mode is
// one of them.
func (p *proxy) newNeighbours() *coexist.Watcher {
	if !p.settings.Mode.BesideIPTables {
		return nil
	}
	return coexist.New(coexist.Options{
		Logger: p.logger.WithName("coexist"), Clock: p.clock,
		Mark: func() (mark uint32) {
			p.engine.Inspect(func(v engine.View) { mark = v.Desired.Settings.MasqueradeMark })
			return mark
		},
		Period: func() time.Duration { return p.servers.settings.Load().SyncPeriod },
		Found: func(problem model.Problem) {
			p.recorder.Record(telemetry.IPTablesConflict(p.settings.Plan.NodeName, problem))
		},
	})
}

// advisories are what interferes with Services on this node.
func (p *proxy) advisories() []model.Problem {
	if p.neighbours == nil {
		return nil
	}
	return p.neighbours.Advisories()
}

// takeOver replaces a previous proxy, and then coexists with other programs.
func (p *proxy) takeOver(ctx context.Context) {
	if p.neighbours != nil {
		p.neighbours.Look(ctx)
	}
	p.removeLeftovers(ctx)
	var drains sync.WaitGroup
	for _, m := range mode.All {
		if m.Drain != nil && ctx.Err() == nil {
			drains.Go(func() { p.drain(ctx, m) })
		}
	}
	if p.neighbours != nil {
		p.neighbours.Run(ctx)
	}
	drains.Wait()
}

// defaultDrainTimeout is how long IPVS keeps an idle TCP connection.
const defaultDrainTimeout = 15 * time.Minute

// drain ends what is left of another kube-proxy in a mode, when its connections have
// ended.
func (p *proxy) drain(ctx context.Context, m dataplane.Mode) {
	logger := p.logger.WithName("leftovers")
	err := m.Drain(ctx, dataplane.DrainOptions{
		Logger: logger, Running: p.dataplane, IPVS: p.settings.IPVS,
		Timeout: p.options.drainTimeout, Report: p.reportDraining,
	})
	if err != nil && ctx.Err() == nil {
		logger.Error(err, "Something of another kube-proxy stays in the kernel", "mode", m.Name)
	}
}

// reportDraining has the status and the metrics show what is left.
func (p *proxy) reportDraining(d dataplane.Draining) {
	p.metrics.Draining(d.Connections)
	if d == (dataplane.Draining{}) {
		p.draining.Store(nil)
		return
	}
	p.draining.Store(&status.Draining{Connections: d.Connections, Services: d.Services, Until: d.Until})
}

// relays returns a function that reports whether connections are led to an address of
// this process; nil if none are.
func (p *proxy) relays() func(netip.AddrPort) bool {
	if r, ok := p.dataplane.(dataplane.Relayer); ok {
		return r.Relays
	}
	return nil
}

// defaultShutdownGrace is less than what pods have to end.
const defaultShutdownGrace = 25 * time.Second

// finish lets another process take over, and serves to the end what depends on this one.
func (p *proxy) finish(lock *instancelock.Lock) error {
	err := lock.Release()
	r, ok := p.dataplane.(dataplane.Relayer)
	if !ok {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.options.shutdownGrace)
	defer cancel()
	if left := r.Finish(ctx, instancelock.Held); left > 0 {
		p.logger.Info("Connections that go through this process end with it", "connections", left, "grace", p.options.shutdownGrace)
	}
	return err
}

// removeLeftovers removes what other modes and upstream's kube-proxy left behind,
// once our rules carry the traffic.
func (p *proxy) removeLeftovers(ctx context.Context) {
	select {
	case <-p.programmed:
	case <-ctx.Done():
		return
	}
	options := dataplane.RemoveOptions{Logger: p.logger.WithName("leftovers"), Running: p.dataplane}
	if p.neighbours != nil {
		p.neighbours.Keep(ctx)
		options.KeepMark = true
	}
	if err := leftovers.Remove(ctx, options); err != nil && ctx.Err() == nil {
		options.Logger.Error(err, "Rules of another kube-proxy stay in the kernel")
	}
}

// cleanup removes what this proxy and others left in the kernel, in all modes.
func cleanup(ctx context.Context, logger logr.Logger) error {
	err := leftovers.Remove(ctx, dataplane.RemoveOptions{Logger: logger.WithName("leftovers")})
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (run it as root, or with CAP_NET_ADMIN)", err)
	}
	if err != nil {
		return err
	}
	logger.Info("Removed all rules of this proxy")
	warnRouteLocalnet(logger)
	return nil
}

// warnRouteLocalnet warns about a sysctl that upstream's iptables mode leaves
// behind. It is not reset: another program may rely on it.
func warnRouteLocalnet(logger logr.Logger) {
	interfaces, err := sysctl.RouteLocalnet(sysctl.Options{Logger: logger})
	if err != nil {
		logger.V(1).Info("Cannot find out whether route_localnet is set", "err", err.Error())
	}
	for _, name := range interfaces {
		logger.Info("Warning: route_localnet is set, so that neighbours on the network can reach what listens on 127.0.0.1 of this machine",
			"interface", name, "remedy", "unless another program needs it: echo 0 > /proc/sys/net/ipv4/conf/"+name+"/route_localnet")
	}
}
