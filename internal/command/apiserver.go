package command

import (
	"fmt"
	"strings"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/printable"
	"sluice/internal/status"
)

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
		return s.Away(p.clock.Now())
	}
	return ""
}

// missing returns why it is not known what exists, as long as nothing was programmed; ""
// if the source has not reported any trouble.
func (p *proxy) missing() string {
	s := p.apiServer()
	switch {
	case s == nil:
		var refused []model.Problem
		p.engine.Inspect(func(v engine.View) { refused = v.State.Refused() })
		if len(refused) > 0 {
			return refused[0].String()
		}
		return ""
	case s.Error != "":
		return fmt.Sprintf("the API server has not been reachable for %s: %s", printable.Duration(p.clock.Since(s.Since)), s.Error)
	case s.Connected && len(s.WaitingFor) > 0:
		return "the API server has not sent " + strings.Join(s.WaitingFor, ", ") + " yet"
	}
	return s.Away(p.clock.Now())
}
