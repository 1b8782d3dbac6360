package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"sluice/internal/answer/status"
	"sluice/internal/answer/web"
	"sluice/internal/config"
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/relay"
	"sluice/internal/engine"
	"sluice/internal/kernel/sysctl"
	"sluice/internal/mode"
	"sluice/internal/mode/leftovers"
	"sluice/internal/model"
	"sluice/internal/observe/coexist"
	"sluice/internal/observe/conntrack"
	"sluice/internal/observe/direct"
	"sluice/internal/observe/ejection"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/loopback"
	"sluice/internal/observe/nodeproblem"
	"sluice/internal/observe/offload"
	"sluice/internal/observe/telemetry"
	"sluice/internal/plan"
	"sluice/internal/source/host"
)

// kernel is the host setup of a proxy that programs the kernel.
type kernel struct {
	*proxy
	tracker         *conntrack.Reconciler
	loopback        *loopback.NodePorts
	unserved        *loopback.Unserved // nil if the mode cannot count
	iptablesWatcher *coexist.Watcher   // nil if the mode is one of iptables
	sensor          *evidence.Sensor
	ejector         *ejection.Ejector // nil if the mode notices nothing
	direct          *direct.Follower  // nil if the mode hands no packets to other nodes
	watcher         *nodeproblem.Watcher
	offload         *offload.Offload // nil if the mode has no flow tables
}

// newHostSetup returns what the mode needs.
func newHostSetup(p *proxy) hostSetup {
	if p.settings.Mode.WithoutKernel {
		return withoutKernel{}
	}
	return &kernel{proxy: p}
}

func (k *kernel) lacksIPv6(ctx context.Context) string {
	if reason := sysctl.NoIPv6(sysctl.Options{Logger: k.logger.WithName("host")}); reason != "" {
		return reason
	}
	if c, ok := k.dataplane.(dataplane.FamilyChecker); ok {
		if err := c.CheckFamily(ctx, model.IPv6); err != nil {
			return err.Error()
		}
	}
	return ""
}

func (k *kernel) begin() {
	if k.settings.Instance == "" {
		warnRouteLocalnet(k.logger.WithName("host"))
	}
}

// tune applies the sysctls, and reads those that others may have set. A failure is
// no reason not to serve.
func (k *kernel) tune(s *config.Settings) {
	Initialize(k.logger, s)
	o := sysctl.Options{Logger: k.logger.WithName("host")}
	if err := sysctl.SetOOMScore(o, s.OOMScoreAdj); err != nil {
		logUntuned(k.logger, err)
	}
	if sysctl.TCPIsLiberal(o) { // another program may have set it
		s.Plan.DropInvalid = false
	}
	if k.offload != nil {
		k.offload.Set(s.FlowTable)
	}
}

// Initialize applies the sysctls that need more privileges than the proxy has while
// it serves.
func Initialize(logger logr.Logger, s *config.Settings) {
	for _, err := range sysctl.Apply(sysctl.Options{Conntrack: s.Conntrack, Logger: logger.WithName("host")}) {
		logUntuned(logger, err)
	}
}

func logUntuned(logger logr.Logger, err error) {
	logger.Info("A setting of the kernel stays as it is", "reason", err.Error())
}

func (k *kernel) assemble() []engine.Observer {
	k.sensor = evidence.New(evidence.Options{Logger: k.logger.WithName("evidence"), Clock: k.clock, Engine: k.engine,
		OnLook: func() {
			if k.history.Answers(k.sensor.All()) {
				k.problems.Look()
			}
		},
	})
	k.loopback = loopback.New(loopback.Options{
		Logger: k.logger.WithName("loopback"), Clock: k.clock, ResetRemoved: k.options.ResetRemovedEndpoints, Budget: k.budget(),
		Listening: k.metrics.LoopbackListening, NotListening: k.metrics.LoopbackNotListening, Refused: k.metrics.LoopbackRefused,
		Accepted: k.metrics.LoopbackAccepted, Tried: k.tried,
		Failed: func(service model.Name, err error) {
			k.recorder.Record(telemetry.LoopbackNodePortNotServed(k.settings.Plan.NodeName, service, err))
		},
	})
	k.tracker = conntrack.New(conntrack.Options{
		Logger: k.logger.WithName("conntrack"), Clock: k.clock, Engine: k.engine, OnPass: k.updater.OnPass,
		ResetTCP: k.options.ResetRemovedEndpoints, IsLocal: host.IsLocal, Forwards: k.forwards(), Forget: k.forgetter(),
	})
	k.iptablesWatcher, k.watcher = k.newIPTablesWatcher(), k.newWatcher()
	observers := []engine.Observer{k.tracker, k.loopback}
	if c, ok := k.dataplane.(dataplane.LoopbackCounter); ok {
		k.unserved = loopback.NewUnserved(loopback.Unserved{Logger: k.logger.WithName("loopback"), Clock: k.clock, Counter: c, Count: k.metrics.LoopbackUnserved})
		observers = append(observers, k.unserved)
	}
	if o, ok := k.dataplane.(dataplane.Offloader); ok { // other modes with the table of nftables mode remove what there was
		k.offload = offload.New(offload.Options{Logger: k.logger.WithName("flowtable"), Clock: k.clock, Offloader: o,
			Report: func(s offload.State) { k.metrics.FlowTable(len(s.Devices), s.Connections) }})
		k.offload.Set(k.settings.FlowTable)
		observers = append(observers, k.offload)
	}
	if w, ok := k.dataplane.(dataplane.Witness); ok && k.settings.Plan.CanEject {
		k.ejector = ejection.New(ejection.Options{Logger: k.logger.WithName("ejection"), Clock: k.clock, Witness: w, Sink: k.engine,
			Count: k.metrics.Ejected,
			Ejected: func(service model.Name, e *model.Ejection) {
				k.metrics.Ejection()
				k.recorder.Record(telemetry.EndpointEjected(k.settings.Plan.NodeName, service, e))
			},
		})
		observers = append(observers, k.ejector)
	}
	if r, ok := k.dataplane.(dataplane.DirectReturner); ok && k.settings.Plan.CanDirectReturn {
		k.direct = direct.New(direct.Options{Logger: k.logger.WithName("direct"), Clock: k.clock, Dataplane: r, Sink: k.engine,
			Probed: k.metrics.DirectReturnProbed, Counted: k.metrics.DirectReturnCounter()})
		observers = append(observers, k.direct)
	}
	return observers
}

func (k *kernel) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return k.tracker.Run(ctx) })
	group.Go(func() error { return k.loopback.Run(ctx, k.engine) })
	group.Go(func() error { return k.sensor.Run(ctx) })
	if k.unserved != nil {
		group.Go(func() error { return k.unserved.Run(ctx, k.engine) })
	}
	if k.ejector != nil {
		group.Go(func() error { return k.ejector.Run(ctx) })
	}
	if k.direct != nil {
		group.Go(func() error { return k.direct.Run(ctx) })
	}
	if k.offload != nil {
		group.Go(func() error { return k.offload.Run(ctx, k.engine) })
	}
	group.Go(func() error { k.takeOver(ctx); return nil })
	return errors.Join(group.Wait(), k.watcher.Close())
}

// newIPTablesWatcher returns the Watcher of other users of iptables, nil if the mode is
// one of them, or if they are the business of another proxy.
func (k *kernel) newIPTablesWatcher() *coexist.Watcher {
	if !k.settings.Mode.BesideIPTables || k.settings.Instance != "" {
		return nil
	}
	return coexist.New(coexist.Options{
		Logger: k.logger.WithName("coexist"), Clock: k.clock, Uses: leftovers.Uses,
		Mark: func() (mark uint32) {
			k.engine.Inspect(func(v engine.View) { mark = v.Desired.Settings.MasqueradeMark })
			return mark
		},
		Period: func() time.Duration { return k.servers.settings.Load().SyncPeriod },
	})
}

// newWatcher returns what finds out what is wrong with the node.
func (k *kernel) newWatcher() *nodeproblem.Watcher {
	return nodeproblem.NewWatcher(nodeproblem.Options{
		Logger: k.logger.WithName("node"), Clock: k.clock, Ours: leftovers.Has, InIPTables: !k.settings.Mode.BesideIPTables,
		Plan: func(read func(*plan.Desired, uint64, func(netip.Addr) bool)) {
			k.engine.Inspect(func(v engine.View) { read(v.Desired, v.Version, nodeproblem.OwnAddresses(v.State)) })
		},
	})
}

func (k *kernel) answers() (func(evidence.To) evidence.Report, func(evidence.To, model.PortRange) evidence.Report) {
	return k.sensor.Report, k.sensor.ReportIn
}

func (k *kernel) observed(a dataplane.Attempt)                { k.sensor.Tried(a) }
func (k *kernel) allAnswers() map[evidence.To]evidence.Report { return k.sensor.All() }

func (k *kernel) seen() *status.Evidence {
	s := k.sensor.Summary()
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return &status.Evidence{At: s.At, Interval: s.Interval.Seconds(), Error: text(s.Err), Blind: text(s.Blind)}
}

func (k *kernel) flowTable() *status.FlowTable {
	if k.offload == nil {
		return nil
	}
	s := k.offload.State()
	if !s.Want.On() {
		return nil
	}
	out := &status.FlowTable{FlowTable: s.Want.String(), Devices: s.Devices, Counted: s.Counted}
	for _, n := range s.Connections {
		out.Connections += n
	}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	return out
}

func (k *kernel) received() map[string]uint64 {
	if k.direct == nil {
		return nil
	}
	return k.direct.Received()
}

func (k *kernel) look(ctx context.Context) { k.watcher.Look(ctx) }

func (k *kernel) blocked(p nodeproblem.Path) *nodeproblem.Obstacle { return k.watcher.Blocked(p) }

func (k *kernel) advisories() (settings, rules []model.Problem) {
	settings, rules = k.watcher.Advisories()
	if k.iptablesWatcher != nil {
		rules = append(rules, k.iptablesWatcher.Advisories()...)
	}
	if k.offload != nil {
		settings = append(settings, k.offload.Advisories()...)
	}
	if k.ejector != nil {
		if err := k.ejector.Err(); err != nil {
			settings = append(settings, model.Problem{
				Object: model.Object{Kind: "Endpoints that do not answer"},
				Reason: fmt.Sprintf("they are not noticed, and get connections: %v", err),
				Remedy: "the proxy tries again; see docs/failover.md for what it needs",
			})
		}
	}
	if k.direct != nil {
		if err := k.direct.Err(); err != nil {
			settings = append(settings, model.Problem{
				Object: model.Object{Kind: "Direct return"},
				Reason: fmt.Sprintf("packets are not handed to other nodes as they should be: %v", err),
				Remedy: "the proxy tries again; see docs/direct-return.md for what it needs",
			})
		}
	}
	return settings, rules
}

// takeOver replaces a previous proxy, and then coexists with other programs. A proxy beside
// another one replaces none.
func (k *kernel) takeOver(ctx context.Context) {
	if k.settings.Instance != "" {
		return
	}
	if k.iptablesWatcher != nil {
		k.iptablesWatcher.Look(ctx)
	}
	k.removeLeftovers(ctx)
	var drains sync.WaitGroup
	for _, m := range mode.All {
		if m.Drain != nil && ctx.Err() == nil {
			drains.Go(func() { k.drain(ctx, m) })
		}
	}
	if k.iptablesWatcher != nil {
		k.iptablesWatcher.Run(ctx)
	}
	drains.Wait()
}

// drain ends what is left of another kube-proxy in a mode, when its connections have
// ended.
func (k *kernel) drain(ctx context.Context, m dataplane.Mode) {
	logger := k.logger.WithName("leftovers")
	err := m.Drain(ctx, dataplane.DrainOptions{
		Logger: logger, Running: k.dataplane, ModeSettings: k.settings.ModeSettings,
		Timeout: k.options.DrainTimeout, Report: k.reportDraining,
	})
	if err != nil && ctx.Err() == nil {
		logger.Error(err, "Something of another kube-proxy stays in the kernel", "mode", m.Name)
	}
}

// reportDraining has the status and the metrics show what is left.
func (k *kernel) reportDraining(d dataplane.Draining) {
	k.metrics.Draining(d.Connections)
	if d == (dataplane.Draining{}) {
		k.draining.Store(nil)
		return
	}
	k.draining.Store(&d)
}

// forwards returns a function that reports whether connections are led to an address of
// this process; nil if none are.
func (k *kernel) forwards() func(netip.AddrPort) bool {
	if r, ok := k.dataplane.(dataplane.Forwarder); ok {
		return r.Forwards
	}
	return nil
}

// budget returns that of the connections that the dataplane forwards, nil if it forwards none.
func (k *kernel) budget() *relay.Budget {
	if r, ok := k.dataplane.(interface{ Budget() *relay.Budget }); ok {
		return r.Budget()
	}
	return nil
}

// removeLeftovers removes what other modes and upstream's kube-proxy left behind,
// once our rules carry the traffic.
func (k *kernel) removeLeftovers(ctx context.Context) {
	select {
	case <-k.programmed:
	case <-ctx.Done():
		return
	}
	options := dataplane.RemoveOptions{Logger: k.logger.WithName("leftovers"), Running: k.dataplane}
	if k.iptablesWatcher != nil {
		k.iptablesWatcher.Keep(ctx)
		options.KeepMark = true
	}
	err := leftovers.Remove(ctx, options)
	if name := k.settings.ServiceProxyName; name != "" { // what served only these Services is not needed any more
		err = errors.Join(err, leftovers.Remove(ctx, dataplane.RemoveOptions{Logger: options.Logger, Instance: name}))
	}
	if err != nil && ctx.Err() == nil {
		options.Logger.Error(err, "Rules of another kube-proxy stay in the kernel")
	}
}

// Cleanup removes what this proxy and others left in the kernel, in all modes, or only
// what no other has. Of a named proxy it removes what is its own.
func Cleanup(ctx context.Context, logger logr.Logger, ownOnly bool, instance string) error {
	err := leftovers.Remove(ctx, dataplane.RemoveOptions{Logger: logger.WithName("leftovers"), OwnOnly: ownOnly, Instance: instance})
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (run it as root, or with CAP_NET_ADMIN)", err)
	}
	if err != nil {
		return err
	}
	if ownOnly {
		logger.Info("None of the rules that only this proxy has are left")
		return nil
	}
	logger.Info("No rules of any kube-proxy are left")
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
		logger.Error(nil, "Warning: route_localnet is set, so that neighbours on the network can reach what listens on 127.0.0.1 of this machine",
			"interface", name, "remedy", "unless another program needs it: echo 0 > /proc/sys/net/ipv4/conf/"+name+"/route_localnet")
	}
}

// forgetter returns what makes the kernel forget connections that it remembers outside of
// connection tracking, nil if it remembers none there.
func (k *kernel) forgetter() func(context.Context, []dataplane.Lost) error {
	if f, ok := k.dataplane.(dataplane.Forgetter); ok {
		return f.Forget
	}
	return nil
}

// countConnections returns how the page counts the connections to endpoints, nil if the
// kernel does not forward them.
func (p *proxy) countConnections() web.CountFunc {
	if p.settings.Mode.WithoutKernel {
		return nil
	}
	return func(ctx context.Context) (map[netip.AddrPort]web.Connections, error) {
		out := map[netip.AddrPort]web.Connections{}
		_, err := conntrack.Connections(ctx, 0, conntrack.Selection{}, func(c conntrack.Connection) {
			n := out[c.Endpoint]
			switch {
			case c.Over:
			case c.Protocol == model.TCP && !c.Replied:
				n.Unanswered++
			default:
				n.Open++
			}
			out[c.Endpoint] = n
		})
		return out, err
	}
}
