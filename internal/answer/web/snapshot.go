package web

import (
	"context"
	"net/netip"
	"slices"
	"sync"

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
	refusing func() map[model.Name]refusals
	failures map[plan.Key]struct{}
	status   func(plan.Key) (engine.FrontendStatus, bool)
	inspect  func(func(engine.View))
	judge    func(engine.View) *verdict.Judge
	recorded func(model.Name) (recording, bool)
	// means is the traffic of Services per second over 15 minutes, as far as it is recorded.
	means func() map[model.Name]float64
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
		recorded: h.recorder.of, means: sync.OnceValue(h.recorder.means)}
	s.refusing = sync.OnceValue(s.findRefusing)
	s.verdicts = sync.OnceValue(func() []verdict.Service { return h.verdictsOn(s.cluster) })
	for _, f := range h.Engine.Failures() {
		s.failures[f.Key] = struct{}{}
	}
	return s
}

// findRefusing returns what Services refuse.
func (s *snapshot) findRefusing() map[model.Name]refusals {
	some := map[plan.Key]rates{}
	for key, r := range s.counters.rates {
		if r.refused != (refusals{}) {
			some[key] = r
		}
	}
	out := map[model.Name]refusals{}
	for name, r := range byService(s.inspect, some) {
		if r.refused.total() >= minRefused {
			out[name] = r.refused
		}
	}
	return out
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
