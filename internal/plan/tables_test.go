package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/internal/model"
)

// maglevService has so many ports, and is as old as it says.
func maglevService(namespace, name string, born, ports int) *model.Service {
	return service(model.IPv4, func(s *model.Service) {
		s.Name = model.Name{Namespace: namespace, Name: name}
		s.Created = year(born)
		s.Algorithm, s.AlgorithmChosen = model.Maglev, true
		s.Ports = nil
		for i := range ports {
			s.Ports = append(s.Ports, model.ServicePort{Name: fmt.Sprint(i), Protocol: model.TCP, Port: uint16(1000 + i)})
		}
	})
}

func withMaglev() Config {
	cfg := defaults
	cfg.Algorithms = model.NewAlgorithms(model.Maglev)
	return cfg
}

// refusedTables are the Services that are told that there are not enough lookup tables.
func refusedTables(d *Desired) []string {
	refused := []string{}
	for object, problems := range d.Problems {
		if slices.ContainsFunc(problems, func(p model.Problem) bool { return strings.Contains(p.Reason, "lookup tables") }) {
			refused = append(refused, object.String())
		}
	}
	slices.Sort(refused)
	return refused
}

// TestOldestServicesGetLookupTables adds and removes Services in any order: the result does not
// depend on it, and those that lose or get tables are planned again.
func TestOldestServicesGetLookupTables(t *testing.T) {
	half := MaxMaglevTables / 2
	all := []*model.Service{
		maglevService("a", "old", 2020, half),
		maglevService("a", "young", 2021, half),
		maglevService("a", "younger", 2022, half),
		maglevService("b", "large", 2023, MaxMaglevTables+1),
	}
	for order := range permutations(all) {
		state, planner := model.NewState(), New(withMaglev())
		apply := func(e model.Event) *Desired {
			var dirty model.Dirty
			state.Apply(&dirty, e)
			planner.Update(state, &dirty)
			return planner.Desired()
		}
		planner.Update(state, &model.Dirty{})
		for _, svc := range order {
			apply(model.SetService{Service: svc})
		}
		wantEqual(t, "refused", []string{"Service a/younger", "Service b/large"}, refusedTables(planner.Desired()))
		d := apply(model.DeleteService{Name: all[0].Name})
		wantEqual(t, "refused when the oldest is gone", []string{"Service b/large"}, refusedTables(d))
		d = apply(model.SetService{Service: maglevService("b", "large", 2023, MaxMaglevTables)})
		wantEqual(t, "refused when it is smaller", []string{}, refusedTables(d))
		d = apply(model.SetService{Service: all[0]})
		wantEqual(t, "refused when the oldest is back", []string{"Service a/younger"}, refusedTables(d))
	}
}

func TestNodeHasSoManyLookupTables(t *testing.T) {
	state := model.NewState()
	fit := MaxMaglevTablesNode / MaxMaglevTables
	for i := range fit + 1 {
		state.Apply(&model.Dirty{}, model.SetService{Service: maglevService(fmt.Sprintf("n%d", i), "web", 2020+i, MaxMaglevTables)})
	}
	planner := New(withMaglev())
	planner.Update(state, &model.Dirty{})
	wantEqual(t, "refused", []string{fmt.Sprintf("Service n%d/web", fit)}, refusedTables(planner.Desired()))
}

func TestTablesOfAService(t *testing.T) {
	both := maglevService("a", "b", 2020, 3)
	both.ClusterIPs = addrs("10.96.0.1", "fd00:10:96::1")
	split := maglevService("a", "b", 2020, 3)
	split.ExternalPolicy = model.PolicyLocal
	local := maglevService("a", "b", 2020, 3)
	local.ExternalPolicy, local.InternalPolicy = model.PolicyLocal, model.PolicyLocal
	for i, svc := range []*model.Service{maglevService("a", "b", 2020, 3), both, split, local} {
		if got, want := tablesOf(svc), []int{3, 6, 6, 3}[i]; got != want {
			t.Errorf("Service %d has %d tables, want %d", i, got, want)
		}
	}
}
