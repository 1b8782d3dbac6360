package plan

import (
	"fmt"
	"testing"

	"sluice/internal/model"
)

// poolDecisionOf explains the only port of default/web.
func poolDecisionOf(t *testing.T, svc *model.Service, slices ...*model.Slice) *PoolDecision {
	t.Helper()
	events := []model.Event{model.SetService{Service: svc}}
	for _, s := range slices {
		events = append(events, model.SetSlice{Slice: s})
	}
	state := stateOf(events...)
	p := New(defaults)
	p.Update(state, &model.Dirty{})
	e := p.Evidence(state, svc.Name)
	decision := e.PoolDecision(e.Frontends()[0])
	if decision == nil {
		t.Fatal("the frontend has no pool decision")
	}
	return decision
}

// decisionList is "1 in-pool/not-here" for each endpoint.
func decisionList(p *PoolDecision) []string {
	var out []string
	for _, f := range p.Endpoints {
		ip := f.Endpoint.Addr.AsSlice()
		out = append(out, fmt.Sprintf("%d %s/%s", ip[len(ip)-1], f.InCluster, f.InLocal))
	}
	return out
}

func TestEveryEndpointHasADecision(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		other := model.IPv6
		if f == model.IPv6 {
			other = model.IPv4
		}
		named := func(s *model.Slice, port string) *model.Slice { s.Ports[0].Name = port; return s }
		bad := pod(f, 3, here, ready)
		bad.Addr = numbered(f, "127.0.0.%d", "::%x", 1)
		tests := []struct {
			name           string
			in             []*model.Slice
			want           []string // cluster pool/local pool
			cluster, local Origin
		}{
			{name: "none"},
			{name: "ready, here and elsewhere", in: []*model.Slice{slice(f, "a", pod(f, 1, here, ready), pod(f, 2, "far", ready))},
				want: []string{"1 in-pool/in-pool", "2 in-pool/not-here"}, cluster: FromReady, local: FromReady},
			{name: "not ready, and no longer serving", in: []*model.Slice{slice(f, "a", pod(f, 1, here, starting), pod(f, 2, here, dying))},
				want: []string{"1 not-ready/not-ready", "2 not-serving/not-serving"}},
			{name: "terminating ones stand in", in: []*model.Slice{slice(f, "a", pod(f, 1, here, draining), pod(f, 2, "far", draining))},
				want: []string{"1 in-pool/in-pool", "2 in-pool/not-here"}, cluster: FromTerminating, local: FromTerminating},
			{name: "terminating ones beside ready ones", in: []*model.Slice{slice(f, "a", pod(f, 1, here, draining), pod(f, 2, "far", ready))},
				want: []string{"1 terminating/in-pool", "2 in-pool/not-here"}, cluster: FromReady, local: FromTerminating},
			{name: "twice, the ready one counts", in: []*model.Slice{slice(f, "a", pod(f, 1, here, draining)), slice(f, "b", pod(f, 1, here, ready))},
				want: []string{"1 duplicate/duplicate", "1 in-pool/in-pool"}, cluster: FromReady, local: FromReady},
			{name: "twice in one slice", in: []*model.Slice{slice(f, "a", pod(f, 1, here, ready), pod(f, 1, here, ready))},
				want: []string{"1 in-pool/in-pool", "1 duplicate/duplicate"}, cluster: FromReady, local: FromReady},
			{name: "port of another name", in: []*model.Slice{named(slice(f, "a", pod(f, 1, here, ready)), "web")},
				want: []string{"1 missing-port/missing-port"}},
			{name: "slice of another family", in: []*model.Slice{slice(other, "a", pod(other, 1, here, ready))},
				want: []string{"1 other-family/other-family"}},
			{name: "address that cannot be used", in: []*model.Slice{slice(f, "a", bad)},
				want: []string{"1 bad-address/bad-address"}},
			{name: "hints for another zone", in: []*model.Slice{slice(f, "a", hinted(pod(f, 1, here, ready), "a", ""), hinted(pod(f, 2, here, ready), "b", ""))},
				want: []string{"1 in-pool/in-pool", "2 hinted-elsewhere/in-pool"}, cluster: FromZoneHints, local: FromReady},
			{name: "hints for another node", in: []*model.Slice{slice(f, "a", hinted(pod(f, 1, "far", ready), "", here), hinted(pod(f, 2, here, ready), "", "far"))},
				want: []string{"1 in-pool/not-here", "2 hinted-elsewhere/in-pool"}, cluster: FromNodeHints, local: FromReady},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				a := poolDecisionOf(t, service(f), tt.in...)
				wantEqual(t, "decisions", tt.want, decisionList(a))
				wantEqual(t, "origin of the cluster pool", tt.cluster.String(), a.Cluster.String())
				wantEqual(t, "origin of the local pool", tt.local.String(), a.Local.String())
			})
		}
	})
}

func TestPoolDecisionCountsHints(t *testing.T) {
	f := model.IPv4
	a := poolDecisionOf(t, service(f), slice(f, "a",
		hinted(pod(f, 1, here, ready), "a", ""), pod(f, 2, here, ready), pod(f, 3, here, ready), pod(f, 4, here, draining)))
	if a.Hinted != 1 || a.Unhinted != 2 {
		t.Errorf("%d with hints and %d without, want 1 and 2", a.Hinted, a.Unhinted)
	}
}

func TestPoolDecisionPerPortAndFamily(t *testing.T) {
	svc := service(model.IPv4)
	svc.ClusterIPs = append(svc.ClusterIPs, clusterIP(model.IPv6))
	svc.Ports = append(svc.Ports, model.ServicePort{Name: "dns", Protocol: model.UDP, Port: 53})
	state := stateOf(model.SetService{Service: svc},
		model.SetSlice{Slice: slice(model.IPv4, "a", pod(model.IPv4, 1, here, ready))},
		model.SetSlice{Slice: slice(model.IPv6, "b", pod(model.IPv6, 2, here, ready))})
	p := New(defaults)
	p.Update(state, &model.Dirty{})
	e := p.Evidence(state, svc.Name)
	var got []string
	for _, f := range e.Frontends() {
		d := e.PoolDecision(f)
		got = append(got, fmt.Sprintf("%s %s %v", d.Family, d.Port.Name, decisionList(d)))
	}
	wantEqual(t, "pool decisions", []string{
		"IPv4 dns [1 missing-port/missing-port]", "IPv4 http [1 in-pool/in-pool]",
		"IPv6 dns [2 missing-port/missing-port]", "IPv6 http [2 in-pool/in-pool]",
	}, got)
	none := p.Evidence(state, named("other"))
	if none.PoolDecision(e.Frontends()[0]) != nil || none.Frontends() != nil {
		t.Error("there is a decision on a Service that does not exist")
	}
}
