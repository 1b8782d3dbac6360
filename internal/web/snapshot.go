package web

import (
	"context"
	"slices"

	"sluice/internal/engine"
	"sluice/internal/plan"
)

// snapshot is the cluster as one request sees it, with its status and counters.
type snapshot struct {
	*cluster
	counters reading
	failures map[plan.Key]struct{}
	status   func(plan.Key) (engine.FrontendStatus, bool)
}

// snapshot takes a snapshot for a request, and postpones the expiry of the caches.
func (h *Handler) snapshot(ctx context.Context) *snapshot {
	h.expiry.Reset(keepFor)
	s := &snapshot{cluster: h.cluster(), counters: h.meter.read(ctx), failures: map[plan.Key]struct{}{}, status: h.Engine.Frontend}
	for _, f := range h.Engine.Failures() {
		s.failures[f.Key] = struct{}{}
	}
	return s
}

// failing reports whether the kernel refused a frontend of a Service.
func (s *snapshot) failing(svc *service) bool {
	return len(s.failures) > 0 && slices.ContainsFunc(svc.frontends, func(f *plan.Frontend) bool {
		_, failed := s.failures[f.Key]
		return failed
	})
}
