package plan

import (
	"net/netip"
	"slices"
	"strings"
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

// Where the proxy accepts connections, an endpoint that is the node port itself is reported, as soon
// as its address is one of the node, and not longer.
func TestRingOfANodePortIsReported(t *testing.T) {
	for name, cfg := range map[string]Config{
		"userspace": {NodeName: here, ProxyConnects: true},
		"sandbox":   {NodeName: here, NodePortsOnly: true},
		"kernel":    defaults,
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, f model.Family) {
				cfg := cfg
				cfg.NodePortAddresses = NodePortAddresses{All: true}
				ring := slice(f, "web-1", model.Endpoint{Addr: nodeIPOf(f, 1), Conditions: ready}, model.Endpoint{Addr: nodeIPOf(f, 7), Conditions: ready})
				ring.Ports[0].Port = 30080
				state, planner := stateOf(model.SetService{Service: service(f, external(f))}, model.SetSlice{Slice: ring}), New(cfg)
				var dirty model.Dirty
				for _, step := range []struct {
					event model.Event
					told  bool
				}{
					{model.SetHostIPs{IPs: []netip.Addr{nodeIPOf(f, 2)}}, false},
					{model.SetHostIPs{IPs: []netip.Addr{nodeIPOf(f, 1)}}, name != "kernel"},
					{model.SetHostIPs{IPs: []netip.Addr{nodeIPOf(f, 7)}}, name != "kernel"},
					{model.SetSlice{Slice: slice(f, "web-1", model.Endpoint{Addr: nodeIPOf(f, 7), Conditions: ready})}, false},
				} {
					state.Apply(&dirty, step.event)
					planner.Update(state, &dirty)
					dirty = model.Dirty{}
					problems := planner.Desired().Problems[model.ServiceObject(named("web"))]
					told := slices.ContainsFunc(problems, func(p model.Problem) bool { return strings.Contains(p.Reason, "round in circles") })
					if told != step.told {
						t.Errorf("%+v: problems are %v", step.event, problems)
					}
				}
			})
		})
	}
}
