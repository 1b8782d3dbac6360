package proxy

import (
	"strings"

	"sluice/internal/answer/status"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/nodeproblem"
	"sluice/internal/observe/verdict"
)

// judge returns who judges the Services of a view.
func (p *proxy) judge(v engine.View) *verdict.Judge {
	at, in := p.hostSetup.answers()
	return &verdict.Judge{
		View:      v,
		Phase:     p.engine.Frontend,
		Answers:   at,
		AnswersIn: in,
		Blocked:   p.hostSetup.blocked,
		IsNode:    nodeproblem.OwnAddresses(v.State),
	}
}

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

func (p *proxy) verdicts() map[model.Name]verdict.Service { return verdict.All(p.engine, p.judge) }

// apiServer returns the state of the API server, nil with manifests.
func (p *proxy) apiServer() *status.APIServer {
	if p.cluster == nil {
		return nil
	}
	s := p.cluster.Status()
	out := &status.APIServer{Connected: s.Connected, Since: s.Since, Remedy: s.Remedy, WaitingFor: s.Waiting}
	if s.Reason != nil {
		out.Error = s.Reason.Error()
	}
	for _, a := range s.Without {
		out.Without = append(out.Without, status.Absence(a))
	}
	return out
}

// connected returns whether the API server answers, nil if there is none.
func (p *proxy) connected() func() bool {
	if p.cluster == nil {
		return nil
	}
	return p.cluster.Connected
}

// stale returns why what is known may be out of date.
func (p *proxy) stale() string {
	if s := p.apiServer(); s != nil && s.Error != "" {
		return s.Away(p.clock.Now()) + "; what is known stays in force"
	}
	return ""
}
