package command

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/verdict"
)

// judge returns who judges the Services of a view.
func (p *proxy) judge(v engine.View) *verdict.Judge {
	own := slices.Clone(v.State.HostIPs())
	if n := v.State.Node(); n != nil {
		own = append(own, n.IPs...)
	}
	return &verdict.Judge{
		View:    v,
		Phase:   p.engine.Frontend,
		Answers: p.upkeep.answers(),
		IsNode:  func(ip netip.Addr) bool { return slices.Contains(own, ip) },
	}
}

// verdict returns that on the proxy.
func (p *proxy) verdict() verdict.Proxy {
	f := verdict.Facts{Summary: p.engine.Status(), Now: p.clock.Now()}
	switch {
	case p.cluster != nil:
		if s := p.apiServer(); s.Error != "" { // it was tried
			f.Source = verdict.Source{Away: s.Away(f.Now), Remedy: s.Remedy, Since: s.Since}
		} else if s.Connected && len(s.WaitingFor) > 0 {
			f.Source.Missing = "the API server has not sent all of " + strings.Join(s.WaitingFor, ", ") + " yet"
		}
	case p.manifests.Away() != nil:
		away := p.manifests.Away()
		f.Source = verdict.Source{Away: "the manifests cannot be read: " + away.Err.Error(), Remedy: away.Remedy(), Since: away.Since}
	}
	return verdict.OfProxy(f)
}

// verdicts returns those on all Services.
func (p *proxy) verdicts() (all map[model.Name]verdict.Service) {
	p.engine.Inspect(func(v engine.View) { all = p.judge(v).All() })
	return all
}
