package plan

import (
	"maps"
	"slices"
	"testing"

	"sluice/internal/model"
)

// follow applies events to a state and lets the planner follow.
func follow(p *Planner, state *model.State, events ...model.Event) *Change {
	var dirty model.Dirty
	state.Apply(&dirty, events...)
	return p.Update(state, &dirty)
}

func setKeys(c *Change) []string {
	out := []string{}
	for _, f := range c.Set {
		out = append(out, f.Key.String())
	}
	return out
}

func TestFirstUpdatePlansEverything(t *testing.T) {
	state := stateOf(
		model.SetService{Service: service(model.IPv4, external(model.IPv4))},
		model.SetSlice{Slice: slice(model.IPv4, "web-a", pod(model.IPv4, 1, here, ready))},
	)
	planner := New(defaults)
	change := planner.Update(state, &model.Dirty{})
	wantEqual(t, "revision", state.Revision(), change.Revision)
	wantEqual(t, "settings", planner.Desired().Settings, *change.Settings)
	wantEqual(t, "set, in order", []string{"0.0.0.0:30080/TCP", "10.96.0.1:80/TCP", "198.51.100.1:80/TCP", "198.51.100.2:80/TCP"}, setKeys(change))
	wantEqual(t, "ClusterIPs added", addrs("10.96.0.1"), change.ClusterIPsAdded)
}

func TestUnchangedIsNotInChange(t *testing.T) {
	f := model.IPv4
	endpoints := []model.Endpoint{pod(f, 1, here, ready), pod(f, 2, "far", ready)}
	start := []model.Event{
		model.SetService{Service: service(f, external(f))},
		model.SetSlice{Slice: slice(f, "web-a", endpoints...)},
	}
	tests := []struct {
		name    string
		in      []model.Event
		set     []string
		removed int
	}{
		{"the same Service again", []model.Event{model.SetService{Service: service(f, external(f))}}, []string{}, 0},
		{"the same slice again", []model.Event{model.SetSlice{Slice: slice(f, "web-a", endpoints...)}}, []string{}, 0},
		{"its endpoints in another order", []model.Event{model.SetSlice{Slice: slice(f, "web-a", endpoints[1], endpoints[0])}}, []string{}, 0},
		{"the same endpoints in another slice", []model.Event{model.DeleteSlice{Name: named("web-a")}, model.SetSlice{Slice: slice(f, "web-b", endpoints...)}}, []string{}, 0},
		{"an unready endpoint more", []model.Event{model.SetSlice{Slice: slice(f, "web-a", append(endpoints, pod(f, 3, here, starting))...)}}, []string{}, 0},
		{"another external IP", []model.Event{model.SetService{Service: service(f, external(f), func(s *model.Service) {
			s.ExternalIPs = addrs("198.51.100.9")
		})}}, []string{"198.51.100.9:80/TCP"}, 1},
		{"internal policy", []model.Event{model.SetService{Service: service(f, external(f), internalLocal)}}, []string{"10.96.0.1:80/TCP"}, 0},
		{"a filter", []model.Event{model.SetService{Service: service(f, external(f), func(s *model.Service) { s.Filtered = true })}}, []string{"198.51.100.1:80/TCP"}, 0},
		{"an endpoint goes", []model.Event{model.SetSlice{Slice: slice(f, "web-a", endpoints[0])}},
			[]string{"0.0.0.0:30080/TCP", "10.96.0.1:80/TCP", "198.51.100.1:80/TCP", "198.51.100.2:80/TCP"}, 0},
		{"the Service goes", []model.Event{model.DeleteService{Name: named("web")}}, []string{}, 4},
		{"the Service goes and comes back", []model.Event{model.DeleteService{Name: named("web")}, start[0]}, []string{}, 0},
		{"a slice of nobody", []model.Event{model.SetSlice{Slice: &model.Slice{Name: named("x"), Service: "nobody", Family: f}}}, []string{}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state, planner := stateOf(start...), New(defaults)
			planner.Update(state, &model.Dirty{})
			before := maps.Clone(planner.Desired().Frontends)
			change := follow(planner, state, tt.in...)
			wantEqual(t, "set", tt.set, setKeys(change))
			wantEqual(t, "removed", tt.removed, len(change.Removed))
			wantEqual(t, "empty", len(tt.set) == 0 && tt.removed == 0, change.Empty())
			for key, frontend := range planner.Desired().Frontends {
				if !slices.Contains(tt.set, key.String()) && before[key] != frontend {
					t.Errorf("%s is another value than before", key)
				}
			}
			if web := planner.services[named("web")]; web != nil {
				for _, frontend := range web.plan.frontends {
					if planner.Desired().Frontends[frontend.Key] != frontend {
						t.Errorf("%s is kept twice", frontend.Key)
					}
				}
			}
		})
	}
}

// TestNodeChangeReplansDependents looks at which Services were
// planned again, whether or not that led to another result.
func TestNodeChangeReplansDependents(t *testing.T) {
	pods := prefixes("10.1.0.0/24")
	node := model.Node{Name: here, Zone: "a", IPs: addrs("192.0.2.1"), PodCIDRs: pods}
	changed := func(edit func(*model.Node)) model.Event {
		n := node
		edit(&n)
		return model.SetNode{Node: &n}
	}
	nothing, filtered, both := []string{}, []string{"filtered"}, []string{"filtered", "plain"}
	tests := []struct {
		name     string
		in       model.Event
		settings bool
		want     []string
	}{
		{"nothing", changed(func(*model.Node) {}), false, nothing},
		{"host addresses", model.SetHostIPs{IPs: addrs("192.0.2.9")}, false, nothing},
		{"service CIDRs", model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{Name: "x", Prefixes: pods}}, true, nothing},
		{"pod CIDRs", changed(func(n *model.Node) { n.PodCIDRs = prefixes("10.2.0.0/24") }), true, nothing},
		{"node IPs", changed(func(n *model.Node) { n.IPs = addrs("192.0.2.2") }), true, filtered},
		{"zone", changed(func(n *model.Node) { n.Zone = "b" }), false, both},
		{"pod CIDRs gone", changed(func(n *model.Node) { n.PodCIDRs = nil }), true, both},
		{"node gone", model.SetNode{}, true, both},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state := stateOf(
				model.SetNode{Node: &node},
				model.SetService{Service: contender("plain", year(2020), 1, func(*model.Service) {})},
				model.SetService{Service: contender("filtered", year(2020), 2, func(s *model.Service) { s.Filtered = true })},
			)
			planner := New(Config{NodeName: here, DetectLocal: DetectNodeCIDR})
			planner.Update(state, &model.Dirty{})
			change := follow(planner, state, tt.in)
			again := []string{}
			for name, c := range planner.services {
				if c.touched == planner.updates {
					again = append(again, name.Name)
				}
			}
			slices.Sort(again)
			wantEqual(t, "planned again", tt.want, again)
			wantEqual(t, "settings changed", tt.settings, change.Settings != nil)
		})
	}
}

func TestOneChangedSliceCostsOneService(t *testing.T) {
	f := model.IPv4
	state := stateOf(
		model.SetService{Service: service(f)},
		model.SetService{Service: contender("other", year(2020), 2, func(*model.Service) {})},
	)
	planner := New(defaults)
	planner.Update(state, &model.Dirty{})
	change := follow(planner, state, model.SetSlice{Slice: slice(f, "web-a", pod(f, 1, here, ready))})
	wantEqual(t, "set", []string{"10.96.0.1:80/TCP"}, setKeys(change))
	if planner.services[named("other")].touched == planner.updates {
		t.Error("the other Service was planned again")
	}
}

func TestManyServicesAtOnce(t *testing.T) {
	state := benchCluster(2*chunkSize+1, 2)
	atOnce, oneByOne := New(defaults), New(defaults)
	change := atOnce.Update(state, &model.Dirty{All: true})
	wantEqual(t, "set", 2*chunkSize+1, len(change.Set))
	oneByOne.Update(model.NewState(), &model.Dirty{})
	for name := range state.Services() {
		dirty := model.Dirty{Node: true, Services: map[model.Name]struct{}{name: {}}}
		oneByOne.Update(state, &dirty)
	}
	wantEqual(t, "desired", oneByOne.Desired(), atOnce.Desired())
}

func TestSliceMovesToAnotherService(t *testing.T) {
	f := model.IPv4
	moving := slice(f, "s", pod(f, 1, here, ready))
	moving.Problems = []model.Problem{{Object: model.Object{Kind: "EndpointSlice", Namespace: "default", Name: "s"}, Reason: "odd"}}
	state := stateOf(
		model.SetService{Service: service(f)},
		model.SetService{Service: contender("other", year(2020), 2, func(*model.Service) {})},
		model.SetSlice{Slice: moving},
	)
	planner := New(defaults)
	planner.Update(state, &model.Dirty{})
	moved := *moving
	moved.Service = "other"
	change := follow(planner, state, model.SetSlice{Slice: &moved})
	wantEqual(t, "left", "reject", routeText(f, &frontendAt(t, planner.Desired(), addrs("10.96.0.1")[0]).Route))
	wantEqual(t, "right", "1*", routeText(f, &frontendAt(t, planner.Desired(), addrs("10.96.0.2")[0]).Route))
	wantEqual(t, "problems", []string{": odd"}, problemList(planner.Desired(), "EndpointSlice default/s"))
	wantEqual(t, "problems changed", false, change.Problems)
}

func TestSetConfigPlansEverythingAgain(t *testing.T) {
	f := model.IPv4
	state := stateOf(model.SetService{Service: service(f, external(f))})
	planner := New(defaults)
	planner.Update(state, &model.Dirty{})

	same := planner.SetConfig(state, defaults)
	wantEqual(t, "the same configuration changes nothing", true, same.Empty())

	cfg := defaults
	cfg.MasqueradeAll, cfg.MasqueradeBit, cfg.NoExternalIPs = true, 15, true
	change := planner.SetConfig(state, cfg)
	wantEqual(t, "set", []string{"10.96.0.1:80/TCP"}, setKeys(change))
	wantEqual(t, "removed", []Key{{Addr: vip(f, 2), Port: 80, Protocol: model.TCP}}, change.Removed)
	wantEqual(t, "mark", uint32(0x8000), change.Settings.MasqueradeMark)
	wantEqual(t, "revision", state.Revision(), change.Revision)

	back := planner.SetConfig(state, defaults)
	wantEqual(t, "set on the way back", []string{"10.96.0.1:80/TCP", "198.51.100.2:80/TCP"}, setKeys(back))
}

// A mode that looks at frontends only is asked for nothing else.
func TestFrontendsOnly(t *testing.T) {
	f := model.IPv4
	state := stateOf(model.SetService{Service: service(f)},
		model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{Name: "x", Prefixes: prefixes("10.96.0.0/16")}})
	only := defaults
	only.FrontendsOnly = true
	planner := New(only)
	planner.Update(state, &model.Dirty{})
	for _, tt := range []struct {
		name string
		cfg  Config
		want int
	}{{"only", only, 0}, {"all", defaults, 1}, {"only again", only, 0}} {
		planner.SetConfig(state, tt.cfg)
		d := planner.Desired()
		wantEqual(t, tt.name+": frontends", []string{"10.96.0.1:80/TCP ClusterIP web:http"}, frontendList(d))
		wantEqual(t, tt.name+": ClusterIPs", tt.want, len(d.ClusterIPs))
		wantEqual(t, tt.name+": service CIDRs", tt.want, len(d.Settings.ServiceCIDRs))
	}
}

func TestSetConfigIncludesDirty(t *testing.T) {
	f := model.IPv4
	state := stateOf(model.SetService{Service: service(f)})
	planner := New(defaults)
	planner.Update(state, &model.Dirty{})
	var dirty model.Dirty
	state.Apply(&dirty, model.DeleteService{Name: named("web")},
		model.SetService{Service: contender("new", year(2020), 9, func(*model.Service) {})})
	planner.SetConfig(state, defaults)
	wantEqual(t, "frontends", []string{"10.96.0.9:80/TCP ClusterIP new:http"}, frontendList(planner.Desired()))
	wantEqual(t, "nothing is left to do", true, planner.Update(state, &dirty).Empty())
}

func TestProblemsComeAndGo(t *testing.T) {
	f := model.IPv4
	ofService := model.Object{Kind: "Service", Namespace: "default", Name: "web"}
	ofSlice := model.Object{Kind: "EndpointSlice", Namespace: "default", Name: "web-a"}
	ofNode, ofCIDR := model.NodeObject(here), model.Object{Kind: "ServiceCIDR", Name: "c"}
	problem := func(object model.Object) []model.Problem {
		return []model.Problem{{Object: object, Field: "spec", Reason: "bad", Remedy: "mend it"}}
	}
	svc := service(f, func(s *model.Service) { s.Problems = problem(ofService) })
	sl := slice(f, "web-a")
	sl.Problems = problem(ofSlice)
	state := stateOf(
		model.SetService{Service: svc}, model.SetSlice{Slice: sl},
		model.SetNode{Node: &model.Node{Name: here, Problems: problem(ofNode)}},
		model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{Name: "c", Problems: problem(ofCIDR)}},
	)
	planner := New(defaults)
	change := planner.Update(state, &model.Dirty{})
	wantEqual(t, "changed", true, change.Problems)
	want := map[model.Object][]model.Problem{}
	for _, object := range []model.Object{ofService, ofSlice, ofNode, ofCIDR} {
		want[object] = problem(object)
	}
	wantEqual(t, "problems", want, planner.Desired().Problems)

	change = follow(planner, state, model.SetSlice{Slice: sl})
	wantEqual(t, "changed by nothing", false, change.Problems)

	change = follow(planner, state,
		model.SetService{Service: service(f)}, model.DeleteSlice{Name: sl.Name},
		model.SetNode{Node: &model.Node{Name: here}}, model.DeleteServiceCIDR{Name: "c"})
	wantEqual(t, "changed by mending", true, change.Problems)
	wantEqual(t, "problems left", map[model.Object][]model.Problem{}, planner.Desired().Problems)
}
