package plan

import (
	"slices"
	"testing"

	"sluice/internal/model"
)

// eventsOn are the objects on which this node records Events.
func eventsOn(d *Desired) (out []string) {
	for o := range d.EventsOn {
		out = append(out, o.String())
	}
	slices.Sort(out)
	return out
}

// TestEventsOnlyOnNodesWithEndpoints moves endpoints of a bad Service about.
func TestEventsOnlyOnNodesWithEndpoints(t *testing.T) {
	bad := model.Problem{Object: model.Object{Kind: "whatever"}, Reason: "is odd"}
	eachFamily(t, func(t *testing.T, f model.Family) {
		svc := service(f, func(s *model.Service) { s.Problems = []model.Problem{bad} })
		state, planner := stateOf(model.SetService{Service: svc}), New(defaults)
		planner.Update(state, &model.Dirty{})
		wantEqual(t, "Events without endpoints", []string(nil), eventsOn(planner.Desired()))
		steps := []struct {
			name     string
			at       []model.Endpoint
			want     []string
			reported bool // that Events moved to or from this node
		}{
			{"on another node", []model.Endpoint{pod(f, 1, "far", ready)}, nil, true}, // the slice's problem is new
			{"on no node", []model.Endpoint{pod(f, 1, "", ready)}, nil, false},
			{"here, and not ready", []model.Endpoint{pod(f, 1, "far", ready), pod(f, 2, here, starting)},
				[]string{"EndpointSlice default/web-1", "Service default/web"}, true},
			{"one more here", []model.Endpoint{pod(f, 1, here, ready), pod(f, 2, here, starting)},
				[]string{"EndpointSlice default/web-1", "Service default/web"}, false},
			{"gone", []model.Endpoint{pod(f, 1, "far", ready)}, nil, true},
		}
		for _, step := range steps {
			s := slice(f, "web-1", step.at...)
			s.Problems = []model.Problem{bad}
			var dirty model.Dirty
			state.Apply(&dirty, model.SetSlice{Slice: s})
			change := planner.Update(state, &dirty)
			wantEqual(t, "Events with an endpoint "+step.name, step.want, eventsOn(planner.Desired()))
			wantEqual(t, "changed with an endpoint "+step.name, step.reported, change.Problems)
			wantEqual(t, "objects with problems", 2, len(planner.Desired().Problems))
		}
	})
}

// TestSliceEventsOnlyOnItsNodes has the endpoint that is here in the
// other slice of the Service.
func TestSliceEventsOnlyOnItsNodes(t *testing.T) {
	far, near := slice(model.IPv4, "web-1", pod(model.IPv4, 1, "far", ready)), slice(model.IPv4, "web-2", pod(model.IPv4, 2, here, ready))
	far.Problems = []model.Problem{{Reason: "is odd"}}
	d := planWeb(defaults, service(model.IPv4), far, near)
	wantEqual(t, "Events", []string{"Service default/web"}, eventsOn(d))
	wantEqual(t, "objects with problems", 1, len(d.Problems))
}
