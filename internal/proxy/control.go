package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"sluice/internal/answer/control"
	"sluice/internal/answer/explain"
	"sluice/internal/answer/listing"
	"sluice/internal/answer/question"
	"sluice/internal/answer/status"
	"sluice/internal/base/release"
	"sluice/internal/dataplane"
	"sluice/internal/observe/history"
	"sluice/internal/source/host"
)

// answerQuestions serves the control socket until ctx ends.
func (p *proxy) answerQuestions(ctx context.Context) error {
	if p.options.ControlSocket == "" {
		return nil
	}
	server := control.New(control.Options{Path: p.options.ControlSocket, Logger: p.logger.WithName("control"), Clock: p.clock})
	explainer, reporter, lister, preview := p.explainer(), p.reporter(), p.lister(), &previewer{proxy: p}
	question.Explain.Serve(server, func(ctx context.Context, q *explain.Question) (*explain.Reply, error) {
		p.hostSetup.look(ctx)
		reply, err := explainer.Explain(ctx, *q)
		if errors.Is(err, explain.ErrQuestion) {
			return nil, control.BadRequest(err)
		}
		return reply, err
	})
	question.Status.Serve(server, func(ctx context.Context, _ *question.None) (*status.Report, error) {
		p.hostSetup.look(ctx)
		return reporter.Report(), nil
	})
	question.Services.Serve(server, func(ctx context.Context, q *listing.Query) (*listing.List, error) {
		p.hostSetup.look(ctx)
		return lister.List(ctx, *q)
	})
	started := p.clock.Now()
	question.Events.Serve(server, func(_ context.Context, q *history.Query) (*question.EventList, error) {
		p.collector.Refresh() // refusals are counted by the kernel
		events, last := p.history.Events(*q)
		return &question.EventList{Started: started, Last: last, Events: append([]history.Event{}, events...)}, nil
	})
	question.Diff.Serve(server, preview.preview)
	return server.Run(ctx)
}

func (p *proxy) explainer() *explain.Explainer {
	describer, _ := p.dataplane.(dataplane.Describer)
	return explain.New(explain.Options{
		Engine:      p.engine,
		Judge:       p.judge,
		Describer:   describer,
		InterfaceTo: host.InterfaceTo,
		IsLocal:     host.IsLocal,
		IsInterface: func(name string) bool { _, err := net.InterfaceByName(name); return err == nil },
		Manifests:   p.options.Manifests,
		NotServed:   ReadFor(p.settings).NotServed(),
		Mode:        p.settings.Mode.Name,
		Node:        p.settings.Plan.NodeName,
		Stale:       p.stale,
		Try:         p.experiments.Run,
		Advisories:  p.decisiveAdvisories,
		Offloaded:   p.offloaded,
		Clock:       p.clock,
	})
}

// offloaded returns at which devices flow tables forward established connections.
func (p *proxy) offloaded() []string {
	if t := p.hostSetup.flowTable(); t != nil {
		return t.Devices
	}
	return nil
}

func (p *proxy) lister() *listing.Lister {
	return listing.New(listing.Options{
		Engine: p.engine, Judge: p.judge, Proxy: p.verdict, Traffic: p.traffic(), Node: p.settings.Plan.NodeName, Clock: p.clock,
	})
}

func (p *proxy) reporter() *status.Reporter {
	o := p.statusOptions()
	o.Engine, o.History = p.engine, p.history
	o.Verdict, o.Verdicts, o.Leaving = p.verdict, p.verdicts, p.eligibility.Leaving
	o.Evidence, o.FlowTable = p.hostSetup.seen, p.hostSetup.flowTable
	o.Received = p.hostSetup.received
	o.APIServer, o.Advisories = p.apiServer, p.advisories
	o.Draining, o.Source, o.Addresses = p.draining.Load, p.sourceName(), p.addresses
	if r, ok := p.dataplane.(dataplane.Forwarder); ok {
		o.Relay = func() *status.Relay {
			now, limit := r.Connections()
			return &status.Relay{Connections: now, Limit: limit}
		}
	}
	return status.New(o)
}

// sourceName says where Services come from.
func (p *proxy) sourceName() string {
	if p.client == nil {
		return "manifests in " + p.options.Manifests
	}
	url := p.client.CoreV1().RESTClient().Get().URL()
	return "API server " + url.Scheme + "://" + url.Host
}

// addresses returns those that the servers listen on now.
func (p *proxy) addresses() status.Addresses {
	s := p.servers.settings.Load()
	at := func(a netip.AddrPort) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	}
	out := status.Addresses{Health: at(s.Serving.Health), Metrics: at(s.Serving.Metrics)}
	own, err := p.options.OwnPageAddress(s.Serving.Metrics)
	switch {
	case err != nil || !p.options.Page:
	case own.IsValid():
		out.Page = own.String()
	case s.Serving.Metrics.Addr().IsLoopback():
		out.Page = out.Metrics
	case s.Serving.Metrics.Addr() == netip.IPv4Unspecified():
		out.Page = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), s.Serving.Metrics.Port()).String()
	case s.Serving.Metrics.Addr() == netip.IPv6Unspecified():
		out.Page = netip.AddrPortFrom(netip.IPv6Loopback(), s.Serving.Metrics.Port()).String()
	}
	return out
}

// statusOptions are the parts of a status that are known before there is an engine.
func (p *proxy) statusOptions() status.Options {
	return status.Options{
		Version: release.Version(), Mode: p.settings.Mode.Name, ModeReason: p.reason, Node: p.settings.Plan.NodeName, Clock: p.clock,
		ServiceProxyName: p.settings.ServiceProxyName, Serves: ReadFor(p.settings).Served(),
	}
}
