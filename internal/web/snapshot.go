package web

import (
	"context"
	"net/netip"
	"slices"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/verdict"
)

// snapshot is the cluster as one request sees it, with its status and counters.
type snapshot struct {
	*cluster
	counters reading
	failures map[plan.Key]struct{}
	status   func(plan.Key) (engine.FrontendStatus, bool)
	inspect  func(func(engine.View))
	judge    func(engine.View) *verdict.Judge
	recorded func(model.Name) (recording, bool)
}

// lostFrontend is one that a Service wants and another one has.
type lostFrontend struct {
	plan.Frontend
	owner model.Name
}

// snapshot takes a snapshot for a request, and postpones the expiry of the cache.
func (h *Handler) snapshot(ctx context.Context) *snapshot {
	h.expiry.Reset(keepFor)
	s := &snapshot{cluster: h.cluster(), counters: h.meter.read(ctx), failures: map[plan.Key]struct{}{}, status: h.Engine.Frontend, inspect: h.Engine.Inspect, judge: h.Judge,
		recorded: h.recorder.of}
	for _, f := range h.Engine.Failures() {
		s.failures[f.Key] = struct{}{}
	}
	return s
}

// lost returns the frontends that a Service wants and another one has, of which its
// problems tell.
func (s *snapshot) lost(svc *service) (out []lostFrontend) {
	if !svc.problem {
		return nil
	}
	s.inspect(func(v engine.View) {
		for _, f := range wanted(svc.Service) {
			if has := v.Desired.Frontends[f.Key]; has != nil && has.Service != svc.Name {
				out = append(out, lostFrontend{f, has.Service})
			}
		}
	})
	return out
}

// wanted returns the addresses and ports that a Service asks for.
func wanted(s *model.Service) (out []plan.Frontend) {
	for _, port := range s.Ports {
		add := func(kind plan.Kind, number uint16, at ...netip.Addr) {
			for _, addr := range at {
				key := plan.Key{Addr: addr, Port: number, Protocol: port.Protocol}
				out = append(out, plan.Frontend{Key: key, Kind: kind, Service: s.Name, Port: port.Name})
			}
		}
		add(plan.ClusterIP, port.Port, s.ClusterIPs...)
		add(plan.LoadBalancerIP, port.Port, s.LoadBalancerIPs...)
		add(plan.ExternalIP, port.Port, s.ExternalIPs...)
		for _, ip := range s.ClusterIPs {
			if any := netip.IPv4Unspecified(); port.NodePort != 0 && ip.Is4() {
				add(plan.NodePort, port.NodePort, any)
			} else if port.NodePort != 0 {
				add(plan.NodePort, port.NodePort, netip.IPv6Unspecified())
			}
		}
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
