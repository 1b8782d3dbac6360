package command

import (
	"net/netip"
	"slices"

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

// verdicts returns those on all Services.
func (p *proxy) verdicts() (all map[model.Name]verdict.Service) {
	p.engine.Inspect(func(v engine.View) { all = p.judge(v).All() })
	return all
}
