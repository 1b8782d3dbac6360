package command

import (
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/nodeproblem"
	"sluice/internal/verdict"
)

// judge returns who judges the Services of a view.
func (p *proxy) judge(v engine.View) *verdict.Judge {
	return &verdict.Judge{
		View:    v,
		Phase:   p.engine.Frontend,
		Answers: p.upkeep.answers(),
		Blocked: p.upkeep.blocked,
		IsNode:  nodeproblem.OwnAddresses(v.State),
	}
}

// verdicts returns those on all Services.
func (p *proxy) verdicts() (all map[model.Name]verdict.Service) {
	p.engine.Inspect(func(v engine.View) { all = p.judge(v).All() })
	return all
}
