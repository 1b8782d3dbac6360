package plan

import (
	"testing"

	"sluice/internal/model"
)

func healthChecked(s *model.Service) {
	externalLocal(s)
	s.HealthCheckNodePort = 32000
}

func TestHealthCheckCountsLocalEndpoints(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		tests := []struct {
			name string
			in   []model.Endpoint
			want int
		}{
			{"none", nil, 0},
			{"two here, one elsewhere", []model.Endpoint{pod(f, 1, here, ready), pod(f, 2, here, ready), pod(f, 3, "far", ready)}, 2},
			{"terminating ones do not count", []model.Endpoint{pod(f, 1, here, draining)}, 0},
			{"nor do they beside a ready one", []model.Endpoint{pod(f, 1, here, draining), pod(f, 2, here, ready)}, 1},
			{"nor unready ones", []model.Endpoint{pod(f, 1, here, starting)}, 0},
			{"the same twice", []model.Endpoint{pod(f, 1, here, ready), pod(f, 1, here, ready)}, 1},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				// A second port with the same endpoints does not change the count.
				second := func(s *model.Service) {
					s.Ports = append(s.Ports, model.ServicePort{Name: "https", Protocol: model.TCP, Port: 443})
				}
				s := slice(f, "web-a", tt.in...)
				s.Ports = append(s.Ports, model.SlicePort{Name: "https", Protocol: model.TCP, Port: 8443})
				d := planWeb(defaults, service(f, healthChecked, second), s)
				want := HealthCheck{Service: named("web"), Port: 32000, LocalEndpoints: tt.want, IPv4: f == model.IPv4, IPv6: f == model.IPv6}
				if f == model.IPv6 {
					want.LocalIPv6 = tt.want
				}
				wantEqual(t, "health checks", map[model.Name]HealthCheck{named("web"): want}, d.HealthChecks)
			})
		}
	})
}

func TestHealthCheckCountsAnyPort(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		second := func(s *model.Service) {
			s.Ports = append(s.Ports, model.ServicePort{Name: "https", Protocol: model.TCP, Port: 443})
		}
		https := slice(f, "web-b", pod(f, 2, here, ready))
		https.Ports[0].Name = "https"
		unmatched := slice(f, "web-c", pod(f, 3, here, ready))
		unmatched.Ports[0].Name = "metrics"
		d := planWeb(defaults, service(f, healthChecked, second), slice(f, "web-a", pod(f, 1, here, ready)), https, unmatched)
		wantEqual(t, "local endpoints", 2, d.HealthChecks[named("web")].LocalEndpoints)
	})
}

func TestNoHealthCheckWithoutAPort(t *testing.T) {
	d := planWeb(defaults, service(model.IPv4, externalLocal), slice(model.IPv4, "web-a", pod(model.IPv4, 1, here, ready)))
	wantEqual(t, "health checks", map[model.Name]HealthCheck{}, d.HealthChecks)
}

func TestOldestServiceKeepsHealthCheckPort(t *testing.T) {
	old := contender("old", year(2020), 1, healthChecked)
	young := contender("young", year(2021), 2, healthChecked)
	for order := range permutations([]*model.Service{old, young}) {
		state, planner := model.NewState(), New(defaults)
		planner.Update(state, &model.Dirty{})
		for _, svc := range order {
			var dirty model.Dirty
			state.Apply(&dirty, model.SetService{Service: svc})
			planner.Update(state, &dirty)
		}
		wantEqual(t, "health checks", map[model.Name]HealthCheck{old.Name: {Service: old.Name, Port: 32000, IPv4: true}}, planner.Desired().HealthChecks)
		wantEqual(t, "problems of the younger", []string{
			"spec.healthCheckNodePort: port 32000 belongs to Service default/old, which is older or, if they are of one age, first by name",
		}, problemList(planner.Desired(), "Service default/young"))

		var dirty model.Dirty
		state.Apply(&dirty, model.DeleteService{Name: old.Name})
		change := planner.Update(state, &dirty)
		wantEqual(t, "health checks of the heir", map[model.Name]HealthCheck{young.Name: {Service: young.Name, Port: 32000, IPv4: true}}, planner.Desired().HealthChecks)
		wantEqual(t, "problems of the heir", 0, len(planner.Desired().Problems))
		wantEqual(t, "changes are flagged", true, change.HealthChecks && change.Problems)
	}
}

func TestHealthCheckCountsPerFamily(t *testing.T) {
	dual := service(model.IPv4, healthChecked)
	dual.ClusterIPs = append(dual.ClusterIPs, service(model.IPv6).ClusterIPs...)
	d := planWeb(defaults, dual,
		slice(model.IPv4, "web-a", pod(model.IPv4, 1, here, ready), pod(model.IPv4, 2, here, ready)),
		slice(model.IPv6, "web-b", pod(model.IPv6, 1, here, ready)))
	check := d.HealthChecks[named("web")]
	wantEqual(t, "IPv4 endpoints", 2, check.Local(model.IPv4))
	wantEqual(t, "IPv6 endpoints", 1, check.Local(model.IPv6))
	wantEqual(t, "has both families", true, check.Has(model.IPv4) && check.Has(model.IPv6))
}

func TestHealthChecksWithFrontendsOnly(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		s := slice(f, "web-a", pod(f, 1, here, ready))
		only := defaults
		only.FrontendsOnly = true
		wantEqual(t, "health checks", planWeb(defaults, service(f, healthChecked), s).HealthChecks,
			planWeb(only, service(f, healthChecked), s).HealthChecks)
	})
}
