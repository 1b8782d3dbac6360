package plan

import (
	"testing"
	"time"

	"sluice/internal/model"
)

func TestEndpointCounts(t *testing.T) {
	f := model.IPv4
	leaving, gone := model.Serving|model.Terminating, model.Conditions(model.Terminating)
	tests := []struct {
		name   string
		svc    *model.Service
		slices []*model.Slice
		want   EndpointCounts
	}{
		{"none", service(f), nil, EndpointCounts{}},
		{"all ready", service(f), []*model.Slice{slice(f, "web-a", pod(f, 1, here, ready), pod(f, 2, "far", ready))},
			EndpointCounts{Used: 2, Ready: 2}},
		{"one starts, one leaves, one is gone", service(f), []*model.Slice{slice(f, "web-a",
			pod(f, 1, here, ready), pod(f, 2, here, starting), pod(f, 3, here, leaving), pod(f, 4, here, gone))},
			EndpointCounts{Used: 1, LeftOut: 3, Ready: 1, Terminating: 2}},
		{"only one that leaves", service(f), []*model.Slice{slice(f, "web-a", pod(f, 3, here, leaving))},
			EndpointCounts{Used: 1, Terminating: 1}},
		{"one in two slices", service(f), []*model.Slice{
			slice(f, "web-a", pod(f, 1, here, starting)), slice(f, "web-b", pod(f, 1, here, ready))},
			EndpointCounts{Used: 1, Ready: 1}},
		{"policy Local within the cluster", service(f, internalLocal), []*model.Slice{
			slice(f, "web-a", pod(f, 1, here, ready), pod(f, 2, "far", ready))},
			EndpointCounts{Used: 1, LeftOut: 1, Ready: 2}},
		{"policy Local outside only: the cluster uses all", service(f, external(f), externalLocal), []*model.Slice{
			slice(f, "web-a", pod(f, 1, here, ready), pod(f, 2, "far", ready))},
			EndpointCounts{Used: 2, Ready: 2}},
		{"hints for others", service(f), []*model.Slice{slice(f, "web-a",
			hinted(pod(f, 1, "far", ready), "", here), hinted(pod(f, 2, "far", ready), "", "far"))},
			EndpointCounts{Used: 1, LeftOut: 1, Ready: 2}},
		{"a slice of a family that the Service lacks", service(f), []*model.Slice{
			slice(model.IPv6, "web-6", pod(model.IPv6, 1, here, ready))}, EndpointCounts{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			events := []model.Event{model.SetService{Service: tt.svc}}
			for _, s := range tt.slices {
				events = append(events, model.SetSlice{Slice: s})
			}
			state, planner := stateOf(events...), New(defaults)
			planner.Update(state, &model.Dirty{})
			evidence := planner.Evidence(state, tt.svc.Name)
			wantEqual(t, "counts", tt.want, evidence.EndpointCounts())
		})
	}
}

// A pool counts as used only if the Service really has a frontend that leads there.
func TestEndpointCountsUsedByFrontends(t *testing.T) {
	f := model.IPv4
	events := []model.Event{
		model.SetService{Service: service(f, internalLocal, func(s *model.Service) {
			s.Created, s.ExternalIPs = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), addrs("198.51.100.9")
		})},
		model.SetSlice{Slice: slice(f, "web-a", pod(f, 1, here, ready), pod(f, 2, "far", ready))},
	}
	off := defaults
	off.NoExternalIPs = true
	for _, tt := range []struct {
		name  string
		cfg   Config
		older []model.Event
		want  EndpointCounts
	}{
		{"external IP of the cluster pool", defaults, nil, EndpointCounts{Used: 2, Ready: 2}},
		{"external IPs switched off", off, nil, EndpointCounts{Used: 1, LeftOut: 1, Ready: 2}},
		{"external IP of another Service", defaults, []model.Event{model.SetService{Service: service(f, func(s *model.Service) {
			s.Name, s.ClusterIPs, s.ExternalIPs = named("older"), addrs("10.96.0.77"), addrs("198.51.100.9")
		})}}, EndpointCounts{Used: 1, LeftOut: 1, Ready: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state, planner := stateOf(append(tt.older, events...)...), New(tt.cfg)
			planner.Update(state, &model.Dirty{})
			evidence := planner.Evidence(state, named("web"))
			wantEqual(t, "counts", tt.want, evidence.EndpointCounts())
		})
	}
}

func TestEndpointCountsWithoutService(t *testing.T) {
	state, planner := stateOf(), New(defaults)
	planner.Update(state, &model.Dirty{})
	evidence := planner.Evidence(state, named("nobody"))
	wantEqual(t, "counts", EndpointCounts{}, evidence.EndpointCounts())
}

// Endpoints with an address of each family count once, as pods do.
func TestInUse(t *testing.T) {
	svc := service(model.IPv4, func(s *model.Service) { s.ClusterIPs = append(s.ClusterIPs, clusterIP(model.IPv6)) })
	state, planner := stateOf(model.SetService{Service: svc},
		model.SetSlice{Slice: slice(model.IPv4, "web-4", pod(model.IPv4, 1, here, ready), pod(model.IPv4, 2, "far", ready))},
		model.SetSlice{Slice: slice(model.IPv6, "web-6", pod(model.IPv6, 1, here, ready))}), New(defaults)
	planner.Update(state, &model.Dirty{})
	evidence := planner.Evidence(state, svc.Name)
	all, local := InUse(evidence.Frontends())
	wantEqual(t, "endpoints, and those here", [2]int{2, 1}, [2]int{all, local})
}
