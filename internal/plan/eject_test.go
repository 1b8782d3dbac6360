package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/model"
)

// silent are pods that do not answer, as ejected endpoints.
func silent(f model.Family, pods ...int) (out []model.Ejection) {
	for _, n := range pods {
		out = append(out, model.Ejection{Endpoint: netip.AddrPortFrom(podIP(f, n), 8080), Protocol: model.TCP, Attempts: 3, Since: year(2026), Until: year(2026).Add(time.Minute)})
	}
	return out
}

// onTrial has one of them get connections again.
func onTrial(list []model.Ejection, i int) []model.Ejection {
	list[i].OnTrial = true
	return list
}

func ejecting(s *model.Service) { yes := true; s.Eject = &yes }

func TestEjectedEndpoints(t *testing.T) {
	can := defaults
	can.CanEject = true
	byDefault := can
	byDefault.Eject = true
	eachFamily(t, func(t *testing.T, f model.Family) {
		no := func(s *model.Service) { no := false; s.Eject = &no }
		four := slice(f, "web-1", pod(f, 1, here, ready), pod(f, 2, here, ready), pod(f, 3, "", ready), pod(f, 4, "", ready))
		tests := []struct {
			name                   string
			cfg                    Config
			service                *model.Service
			slice                  *model.Slice
			ejected                []model.Ejection
			cluster, local, beside string
			problem                string
		}{
			{"none", can, service(f, ejecting, externalLocal), four, nil, "1 2 3 4", "1 2", "", ""},
			{"one", can, service(f, ejecting), four, silent(f, 3), "1 2 4", "", "3", ""},
			{"half of them", can, service(f, ejecting), four, silent(f, 1, 3), "2 4", "", "1 3", ""},
			{"more than half", can, service(f, ejecting), four, silent(f, 1, 3, 4), "1 2 3 4", "", "", "more than half of the endpoints of port http do not answer"},
			{"all", can, service(f, ejecting), four, silent(f, 1, 2, 3, 4), "1 2 3 4", "", "", "more than half"},
			{"the last one", can, service(f, ejecting), slice(f, "web-1", pod(f, 1, "", ready)), silent(f, 1), "1", "", "", "more than half"},
			{"one on trial", can, service(f, ejecting), four, onTrial(silent(f, 1, 3), 0), "1 2 4", "", "3", ""},
			{"one on trial, and too many fail", can, service(f, ejecting), four, onTrial(silent(f, 1, 3, 4), 0), "1 2 3 4", "", "", "more than half"},
			{"not asked for", can, service(f), four, silent(f, 3), "1 2 3 4", "", "", ""},
			{"asked for by the node", byDefault, service(f), four, silent(f, 3), "1 2 4", "", "3", ""},
			{"declined by the Service", byDefault, service(f, no), four, silent(f, 3), "1 2 3 4", "", "", ""},
			{"a mode that cannot", defaults, service(f, ejecting), four, silent(f, 3), "1 2 3 4", "", "", "endpoints that do not answer are not left out"},
			{"policy Local", can, service(f, ejecting, externalLocal), four, silent(f, 1, 3), "2 4", "2", "1 3", ""},
			{"the last one here", can, service(f, ejecting, externalLocal), slice(f, "web-1", pod(f, 1, here, ready), pod(f, 2, "", ready), pod(f, 3, "", ready)), silent(f, 1), "2 3", "1", "", "more than half"},
			{"terminating ones", can, service(f, ejecting), slice(f, "web-1", pod(f, 1, "", draining), pod(f, 2, "", draining)), silent(f, 1), "2", "", "1", ""},
			{"of another port", can, service(f, ejecting), four, []model.Ejection{{Endpoint: netip.AddrPortFrom(podIP(f, 1), 8081), Protocol: model.TCP}}, "1 2 3 4", "", "", ""},
			{"of another protocol", can, service(f, ejecting), four, []model.Ejection{{Endpoint: netip.AddrPortFrom(podIP(f, 1), 8080), Protocol: model.UDP}}, "1 2 3 4", "", "", ""},
			{"gone is gone", can, service(f, ejecting), slice(f, "web-1", pod(f, 1, "", ready), pod(f, 2, "", ready)), silent(f, 3), "1 2", "", "", ""},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				tt.service.ExternalIPs = []netip.Addr{vip(f, 2)}
				state := stateOf(model.SetService{Service: tt.service}, model.SetSlice{Slice: tt.slice}, model.SetEjected{Service: tt.service.Name, Endpoints: tt.ejected})
				d := fromScratch(tt.cfg, state)
				at := frontendAt(t, d, vip(f, 2))
				local := ""
				if at.Outside != nil {
					local = poolText(f, at.Outside.Endpoints)
				}
				if got := poolText(f, at.Route.Endpoints); got != tt.cluster || local != tt.local {
					t.Errorf("pools %q and %q, want %q and %q", got, local, tt.cluster, tt.local)
				}
				if got := poolText(f, at.AlsoServing); got != tt.beside {
					t.Errorf("%q keep their connections, want %q", got, tt.beside)
				}
				problems := strings.Join(problemList(d, "Service default/web"), "\n")
				if !strings.Contains(problems, tt.problem) || tt.problem == "" && problems != "" {
					t.Errorf("problems %q, want %q", problems, tt.problem)
				}
			})
		}
	})
}

// What is ejected is an input like any other: a Service is planned again when it changes, and explained by it.
func TestEjectionIsFollowed(t *testing.T) {
	cfg := defaults
	cfg.CanEject = true
	f := model.IPv4
	svc := service(f, ejecting)
	state := stateOf(model.SetService{Service: svc}, model.SetSlice{Slice: slice(f, "web-1", pod(f, 1, "", ready), pod(f, 2, "", ready))})
	p := New(cfg)
	p.Update(state, &model.Dirty{})
	set := func(ejected []model.Ejection) *Change {
		var dirty model.Dirty
		state.Apply(&dirty, model.SetEjected{Service: svc.Name, Endpoints: ejected})
		return p.Update(state, &dirty)
	}
	if c := set(silent(f, 2)); len(c.Set) != 1 || poolText(f, c.Set[0].Route.Endpoints) != "1" || !c.Set[0].Watched || poolText(f, c.Set[0].Ejected) != "2" {
		t.Fatalf("change %+v", c)
	}
	e := p.Evidence(state, svc.Name)
	decision := e.PoolDecision(e.Frontends()[0])
	i := slices.IndexFunc(decision.Endpoints, func(d EndpointDecision) bool { return d.Endpoint.Addr == podIP(f, 2) })
	if decision.Endpoints[i].InCluster != Ejected {
		t.Errorf("endpoint 2 is %v", decision.Endpoints[i].InCluster)
	}
	if c := set(silent(f, 2)); !c.Empty() {
		t.Errorf("the same again is %+v", c)
	}
	if c := set(nil); len(c.Set) != 1 || poolText(f, c.Set[0].Route.Endpoints) != "1 2" {
		t.Errorf("its end is %+v", c)
	}
	set(silent(f, 2))
	var dirty model.Dirty
	state.Apply(&dirty, model.DeleteService{Name: svc.Name}, model.SetService{Service: svc})
	if c := p.Update(state, &dirty); !c.Empty() {
		t.Errorf("a Service that was deleted and made again is %+v", c)
	}
	state.Apply(&dirty, model.DeleteService{Name: svc.Name}, model.SetEjected{Service: svc.Name})
	if got := state.Ejected(svc.Name); got != nil {
		t.Errorf("%v are ejected of a Service that is gone", got)
	}
}

// An endpoint may be left out for one protocol and on trial for another: what is said of it is about the one asked for.
func TestEjectionOfOneProtocolIsExplained(t *testing.T) {
	cfg := defaults
	cfg.CanEject = true
	f := model.IPv4
	svc := service(f, ejecting)
	both := append(silent(f, 2), silent(f, 2)...)
	both[0].Protocol, both[0].Attempts, both[1].Attempts = model.UDP, 7, 5
	state := stateOf(model.SetService{Service: svc}, model.SetEjected{Service: svc.Name, Endpoints: both},
		model.SetSlice{Slice: slice(f, "web-1", pod(f, 1, "", ready), pod(f, 2, "", ready))})
	p := New(cfg)
	p.Update(state, &model.Dirty{})
	e := p.Evidence(state, svc.Name)
	for _, d := range e.PoolDecision(e.Frontends()[0]).Endpoints {
		if d.Ejection != nil && d.Ejection.Attempts != 5 {
			t.Errorf("what is said of %s over TCP is about %s", d.Endpoint.Addr, d.Ejection.Protocol)
		}
	}
}
