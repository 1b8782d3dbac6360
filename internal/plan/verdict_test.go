package plan

import (
	"net/netip"
	"testing"

	"sluice/internal/model"
)

func TestRoutesSayWhyTheyRefuse(t *testing.T) {
	f := model.IPv4
	nobody, elsewhere := slice(f, "web-a"), slice(f, "web-a", pod(f, 1, "far", ready))
	local := func(s *model.Service) { internalLocal(s); externalLocal(s) }
	for _, tt := range []struct {
		name            string
		slice           *model.Slice
		verdict         Verdict
		cause           Cause
		cluster, policy bool // whether the routes refuse for that cause
	}{
		{"no endpoint at all", nobody, Reject, NoEndpoints, true, true},
		{"no endpoint on this node", elsewhere, Drop, NoLocalEndpoints, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := planWeb(defaults, service(f, external(f), local), tt.slice)
			internal, external := frontendAt(t, d, clusterIP(f)), frontendAt(t, d, vip(f, 1))
			for _, r := range []*Route{&internal.Route, external.Outside} {
				if r.Verdict() != tt.verdict || r.Refuses(tt.cause) != tt.policy || r.Refuses(SourceRanges) {
					t.Errorf("the route under policy Local: %s, %+v", r.Verdict(), r.Empty)
				}
			}
			if external.Route.Refuses(tt.cause) != tt.cluster || external.HasEndpoints() == tt.cluster {
				t.Errorf("the route of the cluster: %s, %+v", external.Route.Verdict(), external.Route.Empty)
			}
		})
	}
}

func TestServesAllOfAnotherVersion(t *testing.T) {
	pods := func(ns ...int) (out []Endpoint) {
		for _, n := range ns {
			out = append(out, Endpoint{AddrPort: netip.AddrPortFrom(podIP(model.IPv4, n), 8080)})
		}
		return out
	}
	was := &Frontend{Route: Route{Endpoints: pods(1)}, Outside: &Route{Endpoints: pods(2)}, AlsoServing: pods(3)}
	for _, tt := range []struct {
		name string
		now  Frontend
		want bool
	}{
		{"all in one pool", Frontend{Route: Route{Endpoints: pods(1, 2, 3, 4)}}, true},
		{"all drain", Frontend{AlsoServing: pods(1, 2, 3)}, true},
		{"the one of the route left", Frontend{AlsoServing: pods(2, 3)}, false},
		{"the one for those outside left", Frontend{AlsoServing: pods(1, 3)}, false},
		{"the one that drained left", Frontend{AlsoServing: pods(1, 2)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.now.ServesAll(was); got != tt.want {
				t.Errorf("it says %v", got)
			}
		})
	}
}
