package plan

import (
	"slices"
	"strings"
	"testing"

	"sluice/internal/model"
)

// limited is the configuration of a mode that can do as little as there is.
func limited() Config {
	cfg := defaults
	cfg.Limits = Limits{Mechanism: "the mechanism", NoSCTP: true, NoSourceRanges: true, NoAffinityTimeout: true, NoWeights: true,
		NoRefusal: true, OneRoute: true, OneTargetPort: true}
	return cfg
}

// What a Service asks for in vain is a problem of it, with a remedy.
func TestLimitsAreProblems(t *testing.T) {
	weight := uint16(7)
	odd := slice(model.IPv4, "web-2", pod(model.IPv4, 3, "far", ready))
	odd.Ports[0].Port = 9090
	heavy := slice(model.IPv4, "web-2", pod(model.IPv4, 3, "far", ready))
	heavy.Weight = &weight
	for _, tt := range []struct {
		name   string
		edit   func(*model.Service)
		slices []*model.Slice
		want   string
	}{
		{"nothing", func(*model.Service) {}, nil, ""},
		{"usual affinity", func(s *model.Service) { s.Affinity = 10800 }, nil, ""},
		{"affinity", func(s *model.Service) { s.Affinity = 60 }, nil, "the mechanism has no timeout"},
		{"source ranges", func(s *model.Service) { s.Filtered = true; s.SourceRanges = prefixes("10.0.0.0/8") }, nil, "everybody may connect"},
		{"SCTP", func(s *model.Service) {
			s.Ports = append(s.Ports, model.ServicePort{Name: "sctp", Protocol: model.SCTP, Port: 99})
		}, nil, "port 99/SCTP is not served"},
		{"target ports", func(*model.Service) {}, []*model.Slice{odd}, "1 of 3 endpoints get no connections"},
		{"weights", func(*model.Service) {}, []*model.Slice{heavy}, "weights of EndpointSlices do not count"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc := service(model.IPv4, external(model.IPv4), tt.edit)
			all := append([]*model.Slice{slice(model.IPv4, "web-1", pod(model.IPv4, 1, here, ready), pod(model.IPv4, 2, "far", ready))}, tt.slices...)
			d := planWeb(limited(), svc, all...)
			problems := d.Problems[model.ServiceObject(svc.Name)]
			if tt.want == "" && len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			if tt.want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Reason, tt.want) || problems[0].Remedy == "") {
				t.Errorf("problems %v, want %q", problems, tt.want)
			}
			for _, f := range d.Frontends {
				if f.Protocol == model.SCTP || f.Filtered || f.Route.Weighted() || slices.ContainsFunc(f.Route.Endpoints, func(e Endpoint) bool { return e.Port() != 8080 }) {
					t.Errorf("%s is planned as %+v", f.Text(), f)
				}
			}
		})
	}
}

// Where there is one route, external traffic policy Local is for all clients; packets that keep their
// destination stay on the node, and without an endpoint they are left alone.
func TestOneRoute(t *testing.T) {
	cfg := limited()
	cfg.PreserveDestination, cfg.HealthPort = true, 10256
	pods := slice(model.IPv4, "web-1", pod(model.IPv4, 1, here, ready), pod(model.IPv4, 2, "far", ready))
	for _, tt := range []struct {
		name  string
		edit  func(*model.Service)
		local []Kind
	}{
		{"neither", func(*model.Service) {}, nil},
		{"policy Local", externalLocal, []Kind{LoadBalancerIP, ExternalIP, NodePort}},
		{"preserved", func(s *model.Service) { s.PreserveDestination = true }, []Kind{LoadBalancerIP, NodePort}},
	} {
		for _, f := range planWeb(cfg, service(model.IPv4, external(model.IPv4), tt.edit), pods).Frontends {
			want := 2
			if slices.Contains(tt.local, f.Kind) {
				want = 1
			}
			if len(f.Route.Endpoints) != want || f.Outside != nil {
				t.Errorf("%s: %s leads to %v, and outside to %v", tt.name, f.Text(), f.Route.Endpoints, f.Outside)
			}
			if (f.HealthPort == 10256) != (f.Kind == LoadBalancerIP) {
				t.Errorf("%s: health checks of %s are at port %d", tt.name, f.Text(), f.HealthPort)
			}
		}
	}
	for _, f := range planWeb(cfg, service(model.IPv4, externalLocal, external(model.IPv4))).Frontends {
		wantEqual(t, f.Text()+" without endpoints", Pass, f.Route.Verdict())
	}
}
