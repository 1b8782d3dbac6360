package web

import (
	"context"
	"slices"

	"sluice/internal/engine"
	"sluice/internal/plan"
)

// snapshot is the cluster as one request sees it, with what becomes of it in the
// kernel.
type snapshot struct {
	*cluster
	counters reading
	failures map[plan.Key]struct{}
	status   func(plan.Key) (engine.FrontendStatus, bool)
}

// look takes in all that a page shows of Services. What it keeps for the next
// look is forgotten when that does not come.
func (p *Page) snapshot(ctx context.Context) *snapshot {
	p.expiry.Reset(keepFor)
	s := &snapshot{cluster: p.cluster(), counters: p.meter.read(ctx), failures: map[plan.Key]struct{}{}, status: p.Engine.Frontend}
	for _, f := range p.Engine.Failures() {
		s.failures[f.Key] = struct{}{}
	}
	return s
}

// failing tells whether the kernel refused something of a Service.
func (s *snapshot) failing(svc *service) bool {
	return len(s.failures) > 0 && slices.ContainsFunc(svc.frontends, func(f *plan.Frontend) bool {
		_, failed := s.failures[f.Key]
		return failed
	})
}
