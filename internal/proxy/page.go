package proxy

import (
	"context"
	"net/netip"
	"os"
	"time"

	"sluice/internal/answer/web"
	"sluice/internal/base/httpserver"
)

// page returns the handler of the page.
func (p *proxy) page() *web.Handler {
	traffic := p.traffic()
	if traffic != nil {
		traffic = p.collector.Read // so that the history knows of refusals that the page shows
	}
	return web.New(web.Options{
		Engine:  p.engine,
		Status:  p.reporter().Report,
		Explain: p.explainer().Explain,
		Judge:   p.judge,
		Traffic: traffic,
		Count:   p.countConnections(),
		Events:  p.history.Events,
		Logger:  p.logger.WithName("page"),
		Clock:   p.clock,
	})
}

// pageTimeout is how long an answer of the page may take.
const pageTimeout = time.Minute

// servePage serves the page on its own address until ctx ends, if it has one.
func (p *proxy) servePage(ctx context.Context) error {
	log := p.logger.WithName("page")
	at, err := p.options.OwnPageAddress(p.settings.Serving.Metrics)
	if err != nil {
		return err
	}
	if !at.IsValid() {
		if p.options.Page && !hasLoopback(p.settings.Serving.Metrics.Addr()) {
			log.Info("No page for browsers: it is on loopback only, where no metrics are served",
				"metrics", p.settings.Configuration.MetricsBindAddress, "remedy", "give it an address of its own by --page-bind-address")
		}
		return nil
	}
	if !at.Addr().IsLoopback() {
		log.Error(nil, "Warning: anyone who can reach the page's address can see the Services and endpoints of the cluster, and have connections to them tried",
			"address", at.String(), "remedy", "choose a loopback address by --page-bind-address, and reach it by kubectl port-forward or ssh -L")
	}
	server := httpserver.Server{
		Name: "the page for browsers", Address: at.String(), Flag: "--page-bind-address", AnswerTimeout: pageTimeout,
		Handler: httpserver.OwnHosts(p.servers.page, p.hosts()...), Listen: httpserver.Listener(!p.settings.Plan.NoIPv6),
		Logger: log, Clock: p.clock,
	}
	return server.Run(ctx)
}

// hosts are the host names under which browsers may request the page: those of the
// node, and that of the API server, which forwards requests to nodes and pods.
func (p *proxy) hosts() []string {
	names := []string{p.settings.Plan.NodeName}
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	if p.client != nil {
		names = append(names, p.client.CoreV1().RESTClient().Get().URL().Hostname())
	}
	return names
}

// hasLoopback reports whether listening on an address includes loopback.
func hasLoopback(at netip.Addr) bool { return at.IsLoopback() || at.IsUnspecified() }
