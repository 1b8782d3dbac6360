package proxy

import (
	"sluice/internal/answer/status"
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
		return s.Away(p.clock.Now()) + "; what is known stays in force"
	}
	return ""
}
