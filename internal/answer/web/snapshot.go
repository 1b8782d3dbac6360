package web

import (
	"context"
	"slices"
	"sync"

	"sluice/internal/answer/services"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// snapshot is the cluster as one request sees it, with its status and counters.
type snapshot struct {
	*cluster
	counters reading
	// verdicts are those on all Services, in their order.
	verdicts func() []verdict.Service
	// refusing is what Services refuse now, if that is a problem.
	refusing func() map[model.Name]services.Refusals
	failures map[plan.Key]struct{}
	status   func(plan.Key) (engine.FrontendStatus, bool)
	inspect  func(func(engine.View))
	judge    func(engine.View) *verdict.Judge
	recorded func(model.Name) (recording, bool)
	// means is the traffic of Services per second over 15 minutes, as far as it is recorded.
	means func() map[model.Name]float64
}

// snapshot takes a snapshot for a request, and postpones the expiry of the cache.
func (h *Handler) snapshot(ctx context.Context) *snapshot {
	h.expiry.Reset(keepFor)
	s := &snapshot{cluster: h.cluster(), counters: h.meter.read(ctx), failures: map[plan.Key]struct{}{}, status: h.Engine.Frontend, inspect: h.Engine.Inspect, judge: h.Judge,
		recorded: h.recorder.of, means: sync.OnceValue(h.recorder.means)}
	s.refusing = sync.OnceValue(s.findRefusing)
	s.verdicts = sync.OnceValue(func() []verdict.Service { return h.verdictsOn(s.cluster) })
	for _, f := range h.Engine.Failures() {
		s.failures[f.Key] = struct{}{}
	}
	return s
}

func (s *snapshot) findRefusing() map[model.Name]services.Refusals {
	some := map[plan.Key]services.Rates{}
	for key, r := range s.counters.rates {
		if r.Refused != (services.Refusals{}) {
			some[key] = r
		}
	}
	out := map[model.Name]services.Refusals{}
	for name, r := range byService(s.inspect, some) {
		if r.Refused.Total() >= minRefused {
			out[name] = r.Refused
		}
	}
	return out
}

// lost returns the frontends that a Service asks for and another one has, of which its
// problems tell.
func (s *snapshot) lost(svc *service) (out []plan.Lost) {
	if svc.problem {
		s.inspect(func(v engine.View) {
			evidence := v.Evidence(svc.Name)
			out = evidence.Lost()
		})
	}
	return out
}

// failing reports whether the kernel refused a frontend of a Service.
func (s *snapshot) failing(svc *service) bool {
	return len(s.failures) > 0 && slices.ContainsFunc(svc.frontends, func(f *plan.Frontend) bool {
		_, failed := s.failures[f.Key]
		return failed
	})
}
