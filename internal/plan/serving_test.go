package plan

import (
	"net/netip"
	"testing"

	"sluice/internal/model"
)

// An endpoint keeps its flows as long as a slice says that it serves, whatever
// policies and topology say of it and whether it is terminating.
func TestServingEndpointsKeepFlows(t *testing.T) {
	none := "reject" // as a Route without endpoints is written
	tests := []struct {
		name      string
		edit      func(*model.Service)
		endpoints func(model.Family) []model.Endpoint
		// also is AlsoServing of the ClusterIP and of external frontends.
		also, external string
	}{
		{"all are in the pool", func(*model.Service) {}, func(f model.Family) []model.Endpoint {
			return []model.Endpoint{pod(f, 1, here, ready), pod(f, 2, "far", ready)}
		}, none, none},
		{"terminating in good order", func(*model.Service) {}, func(f model.Family) []model.Endpoint {
			return []model.Endpoint{pod(f, 1, here, draining), pod(f, 2, "far", ready)}
		}, "1*", "1*"},
		{"terminating, and in the pool for want of others", func(*model.Service) {}, func(f model.Family) []model.Endpoint {
			return []model.Endpoint{pod(f, 1, here, draining), pod(f, 2, "far", draining)}
		}, none, none},
		{"no longer serving", func(*model.Service) {}, func(f model.Family) []model.Endpoint {
			return []model.Endpoint{pod(f, 1, here, dying), pod(f, 2, "far", ready), pod(f, 3, here, starting)}
		}, none, none},
		{"serving though neither ready nor terminating", func(*model.Service) {}, func(f model.Family) []model.Endpoint {
			return []model.Endpoint{pod(f, 1, here, model.Serving), pod(f, 2, "far", ready)}
		}, "1*", "1*"},
		{"the only one serves and is in no pool", func(*model.Service) {}, func(f model.Family) []model.Endpoint {
			return []model.Endpoint{pod(f, 1, here, model.Serving)}
		}, "1*", "1*"},
		{"internal policy Local", internalLocal, func(f model.Family) []model.Endpoint {
			return []model.Endpoint{pod(f, 1, here, ready), pod(f, 2, "far", ready)}
		}, "2", none},
		{"external policy Local: pods and the node reach all", externalLocal, func(f model.Family) []model.Endpoint {
			return []model.Endpoint{pod(f, 1, here, ready), pod(f, 2, "far", ready), pod(f, 3, "far", draining)}
		}, "3", "3"},
		{"hints elsewhere", externalLocal, func(f model.Family) []model.Endpoint {
			return []model.Endpoint{hinted(pod(f, 1, here, ready), "b", ""), hinted(pod(f, 2, "far", ready), "a", ""), hinted(pod(f, 3, "far", ready), "b", "")}
		}, "1* 3", "3"},
		{"another slice says that it serves", func(*model.Service) {}, func(f model.Family) []model.Endpoint {
			return []model.Endpoint{pod(f, 1, here, dying), pod(f, 2, "far", ready), pod(f, 1, here, draining)}
		}, "1*", "1*"},
		{"no address that could serve", func(*model.Service) {}, func(f model.Family) []model.Endpoint {
			return []model.Endpoint{{Addr: netip.MustParseAddr("127.0.0.1"), Conditions: draining}, pod(f, 2, "far", ready)}
		}, none, none},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, f model.Family) {
				d := planWeb(defaults, service(f, external(f), tt.edit), slice(f, "web-a", tt.endpoints(f)...))
				for _, frontend := range d.Frontends {
					want := tt.external
					if frontend.Kind == ClusterIP {
						want = tt.also
					}
					if got := routeText(f, &Route{Endpoints: frontend.AlsoServing}); got != want {
						t.Errorf("%s: %q serve too, want %q", frontend.Kind, got, want)
					}
					for _, e := range frontend.AlsoServing {
						if !frontend.Serves(e.AddrPort) {
							t.Errorf("%s: %v does not serve", frontend.Kind, e)
						}
					}
				}
			})
		})
	}
}

func TestAlsoServingIsNotProgrammed(t *testing.T) {
	f := model.IPv4
	state, planner := stateOf(
		model.SetService{Service: service(f)},
		model.SetSlice{Slice: slice(f, "web-a", pod(f, 1, here, draining), pod(f, 2, here, ready))},
	), New(defaults)
	planner.Update(state, &model.Dirty{})

	change := follow(planner, state, model.SetSlice{Slice: slice(f, "web-a", pod(f, 1, here, dying), pod(f, 2, here, ready))})
	if !change.Empty() {
		t.Errorf("the kernel gets a change: %+v", change)
	}
	if len(change.Serving) != 1 || change.Serving[0] != frontendAt(t, planner.Desired(), clusterIP(f)) {
		t.Errorf("those who follow flows get %v, want the frontend as it is desired", change.Serving)
	}
}

func TestFrontendsShareAlsoServing(t *testing.T) {
	f := model.IPv4
	d := planWeb(defaults, service(f, external(f)), slice(f, "web-a", pod(f, 1, here, draining), pod(f, 2, here, ready)))
	first := frontendAt(t, d, clusterIP(f)).AlsoServing
	for _, frontend := range d.Frontends {
		if &frontend.AlsoServing[0] != &first[0] {
			t.Errorf("%s has a copy of its own", frontend.Key)
		}
	}
}
