package plan

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/model"
)

// contender is a Service that claims a shared address or port.
func contender(name string, created time.Time, n byte, claim func(*model.Service)) *model.Service {
	return service(model.IPv4, func(s *model.Service) {
		s.Name = named(name)
		s.Created = created
		s.ClusterIPs = addrs(fmt.Sprintf("10.96.0.%d", n))
		claim(s)
	})
}

func permutations[T any](list []T) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		var walk func(done, rest []T) bool
		walk = func(done, rest []T) bool {
			if len(rest) == 0 {
				return yield(done)
			}
			for i := range rest {
				others := slices.Delete(slices.Clone(rest), i, i+1)
				if !walk(append(slices.Clone(done), rest[i]), others) {
					return false
				}
			}
			return true
		}
		walk(nil, list)
	}
}

var contests = []struct {
	name  string
	claim func(*model.Service)
	key   Key
	field string
	what  string
}{
	{
		"external IP", func(s *model.Service) { s.ExternalIPs = addrs("198.51.100.1") },
		Key{Addr: addrs("198.51.100.1")[0], Port: 80, Protocol: model.TCP}, "spec.externalIPs", "ExternalIP 198.51.100.1:80/TCP",
	},
	{
		"load balancer IP", func(s *model.Service) { s.LoadBalancerIPs = addrs("198.51.100.1") },
		Key{Addr: addrs("198.51.100.1")[0], Port: 80, Protocol: model.TCP}, "status.loadBalancer.ingress", "LoadBalancerIP 198.51.100.1:80/TCP",
	},
	{
		"node port", func(s *model.Service) { s.Ports[0].NodePort = 30080 },
		Key{Addr: addrs("0.0.0.0")[0], Port: 30080, Protocol: model.TCP}, "spec.ports", "NodePort 30080/TCP (IPv4)",
	},
}

// TestOldestServiceKeepsAddress also takes the
// winners away, one after the other: the next in line takes over.
func TestOldestServiceKeepsAddress(t *testing.T) {
	for _, tt := range contests {
		t.Run(tt.name, func(t *testing.T) {
			ranking := []*model.Service{
				contender("zero-time", time.Time{}, 1, tt.claim),
				contender("y-oldest", year(2020), 2, tt.claim),
				contender("a-twin", year(2021), 3, tt.claim),
				contender("b-twin", year(2021), 4, tt.claim),
			}
			for order := range permutations(ranking) {
				state, planner := model.NewState(), New(defaults)
				planner.Update(state, &model.Dirty{})
				for _, svc := range order {
					var dirty model.Dirty
					state.Apply(&dirty, model.SetService{Service: svc})
					planner.Update(state, &dirty)
				}
				for i := range ranking {
					wantRanking(t, planner.Desired(), tt.key, tt.field, tt.what, ranking[i:])
					var dirty model.Dirty
					state.Apply(&dirty, model.DeleteService{Name: ranking[i].Name})
					planner.Update(state, &dirty)
				}
				wantEqual(t, "frontends of nobody", 0, len(planner.Desired().Frontends))
				wantEqual(t, "problems of nobody", 0, len(planner.Desired().Problems))
			}
		})
	}
}

func wantRanking(t *testing.T, d *Desired, key Key, field, what string, ranking []*model.Service) {
	t.Helper()
	winner := ranking[0].Name
	if f := d.Frontends[key]; f == nil || f.Service != winner {
		t.Fatalf("%s belongs to %+v, want %s", key, f, winner)
	}
	wantEqual(t, "problems of the winner", []string(nil), problemList(d, "Service "+winner.String()))
	for _, loser := range ranking[1:] {
		wantEqual(t, "problems of a loser", []model.Problem{{
			Object: model.ServiceObject(loser.Name),
			Field:  field,
			Reason: what + " belongs to Service " + winner.String() + ", which is older or, if they are of one age, first by name",
			Remedy: "choose another one here, or remove it from Service " + winner.String(),
		}}, d.Problems[model.ServiceObject(loser.Name)])
		own := Key{Addr: loser.ClusterIPs[0], Port: 80, Protocol: model.TCP}
		if d.Frontends[own] == nil {
			t.Errorf("%s lost %s too", loser.Name, own)
		}
	}
	wantEqual(t, "objects with problems", len(ranking)-1, len(d.Problems))
}

// TestClusterIPOutranks: an external IP of an old Service cannot capture an address that the
// cluster gave to another one, whichever is planned first, nor one of a load balancer.
func TestClusterIPOutranks(t *testing.T) {
	at := addrs("10.96.0.9")
	key := Key{Addr: at[0], Port: 80, Protocol: model.TCP}
	external := contender("external", time.Time{}, 1, func(s *model.Service) { s.ExternalIPs = at })
	balancer := contender("balancer", year(2020), 2, func(s *model.Service) { s.LoadBalancerIPs = at })
	cluster := contender("cluster", year(2021), 9, func(*model.Service) {})
	ranking := []*model.Service{cluster, balancer, external}
	for order := range permutations(ranking) {
		state, planner := model.NewState(), New(defaults)
		planner.Update(state, &model.Dirty{})
		for _, svc := range order {
			var dirty model.Dirty
			state.Apply(&dirty, model.SetService{Service: svc})
			planner.Update(state, &dirty)
		}
		for i, kind := range []Kind{ClusterIP, LoadBalancerIP, ExternalIP} {
			holder := planner.Desired().Frontends[key]
			if holder == nil || holder.Service != ranking[i].Name || holder.Kind != kind {
				t.Fatalf("%s belongs to %+v, want the %s of %s", key, holder, kind, ranking[i].Name)
			}
			for _, loser := range ranking[i+1:] {
				reasons := problemList(planner.Desired(), "Service "+loser.Name.String())
				want := fmt.Sprintf("belongs to Service %s, whose %s it is, which outranks", ranking[i].Name, kind)
				if len(reasons) != 1 || !strings.Contains(reasons[0], want) {
					t.Errorf("problems of %s: %q, want one with %q", loser.Name, reasons, want)
				}
			}
			var dirty model.Dirty
			state.Apply(&dirty, model.DeleteService{Name: ranking[i].Name})
			planner.Update(state, &dirty)
		}
	}
}

// TestClaimChangesItsRank: the same address becomes the Service's load balancer IP.
func TestClaimChangesItsRank(t *testing.T) {
	at := addrs("198.51.100.1")
	old := contender("old", year(2020), 1, func(s *model.Service) { s.ExternalIPs = at })
	young := contender("young", year(2021), 2, func(s *model.Service) { s.ExternalIPs = at })
	state := stateOf(model.SetService{Service: old}, model.SetService{Service: young})
	planner := New(defaults)
	planner.Update(state, &model.Dirty{})
	risen := contender("young", year(2021), 2, func(s *model.Service) { s.LoadBalancerIPs = at })
	for _, step := range []struct {
		svc  *model.Service
		want model.Name
	}{{risen, young.Name}, {young, old.Name}} {
		var dirty model.Dirty
		state.Apply(&dirty, model.SetService{Service: step.svc})
		planner.Update(state, &dirty)
		if got := planner.Desired().Frontends[Key{Addr: at[0], Port: 80, Protocol: model.TCP}].Service; got != step.want {
			t.Errorf("the address belongs to %s, want %s", got, step.want)
		}
	}
}

func TestMovedAddressIsOneChange(t *testing.T) {
	claim := contests[0].claim
	old, young := contender("old", year(2020), 1, claim), contender("young", year(2021), 2, claim)
	state := stateOf(model.SetService{Service: old}, model.SetService{Service: young})
	planner := New(defaults)
	planner.Update(state, &model.Dirty{})

	var dirty model.Dirty
	state.Apply(&dirty, model.DeleteService{Name: old.Name})
	change := planner.Update(state, &dirty)
	if len(change.Set) != 1 || change.Set[0].Key != contests[0].key || change.Set[0].Service != young.Name {
		t.Errorf("set %+v, want the address for %s only", change.Set, young.Name)
	}
	wantEqual(t, "removed", []Key{{Addr: old.ClusterIPs[0], Port: 80, Protocol: model.TCP}}, change.Removed)
	wantEqual(t, "problems changed", true, change.Problems)
}

func TestRecreatedServiceLosesPrecedence(t *testing.T) {
	claim := contests[0].claim
	first, second := contender("first", year(2020), 1, claim), contender("second", year(2021), 2, claim)
	state := stateOf(model.SetService{Service: first}, model.SetService{Service: second})
	planner := New(defaults)
	planner.Update(state, &model.Dirty{})

	var dirty model.Dirty
	again := contender("first", year(2022), 1, claim)
	state.Apply(&dirty, model.DeleteService{Name: first.Name}, model.SetService{Service: again})
	kept := planner.Desired().Frontends[Key{Addr: first.ClusterIPs[0], Port: 80, Protocol: model.TCP}]
	planner.Update(state, &dirty)
	wantRanking(t, planner.Desired(), contests[0].key, contests[0].field, contests[0].what, []*model.Service{second, again})
	if planner.Desired().Frontends[kept.Key] != kept {
		t.Error("the frontend that stayed the same is another value")
	}
}

func TestSharedAddressWithoutConflict(t *testing.T) {
	claim := contests[0].claim
	d := fromScratch(defaults, stateOf(
		model.SetService{Service: contender("a", year(2020), 1, claim)},
		model.SetService{Service: contender("b", year(2020), 2, func(s *model.Service) { claim(s); s.Ports[0].Port = 81 })},
		model.SetService{Service: contender("c", year(2020), 3, func(s *model.Service) { claim(s); s.Ports[0].Protocol = model.UDP })},
	))
	wantEqual(t, "frontends", 6, len(d.Frontends))
	wantEqual(t, "problems", 0, len(d.Problems))
}

func TestExternalIPLosesToOlderClusterIP(t *testing.T) {
	d := fromScratch(defaults, stateOf(
		model.SetService{Service: contender("dns", year(2020), 10, func(*model.Service) {})},
		model.SetService{Service: contender("thief", year(2021), 11, func(s *model.Service) { s.ExternalIPs = addrs("10.96.0.10") })},
	))
	key := Key{Addr: addrs("10.96.0.10")[0], Port: 80, Protocol: model.TCP}
	wantEqual(t, "owner", named("dns"), d.Frontends[key].Service)
	wantEqual(t, "kind", ClusterIP, d.Frontends[key].Kind)
	wantEqual(t, "problems", 1, len(d.Problems[model.Object{Kind: "Service", Namespace: "default", Name: "thief"}]))
}

func TestSharedClusterIPIsRefcounted(t *testing.T) {
	ip := addrs("10.96.0.1")
	a, b := contender("a", year(2020), 1, func(*model.Service) {}), contender("b", year(2021), 1, func(s *model.Service) { s.Ports[0].Port = 81 })
	state := stateOf(model.SetService{Service: a}, model.SetService{Service: b})
	planner := New(defaults)
	wantEqual(t, "added", ip, planner.Update(state, &model.Dirty{}).ClusterIPsAdded)
	for _, step := range []struct {
		gone model.Name
		want int
	}{{a.Name, 0}, {b.Name, 1}} {
		var dirty model.Dirty
		state.Apply(&dirty, model.DeleteService{Name: step.gone})
		change := planner.Update(state, &dirty)
		wantEqual(t, "removed with "+step.gone.Name, step.want, len(change.ClusterIPsRemoved))
		wantEqual(t, "in use", 1-step.want, len(planner.Desired().ClusterIPs))
	}
}

// A Service knows which frontends it has, which it lost, and to whom; what it may not have at all is
// neither.
func TestLostFrontends(t *testing.T) {
	older := contender("older", year(2020), 1, func(s *model.Service) { s.ExternalIPs = addrs("198.51.100.9") })
	younger := contender("younger", year(2021), 2, func(s *model.Service) {
		s.ExternalIPs = addrs("198.51.100.9", "127.0.0.1", "2001:db8::9")
	})
	state, planner := stateOf(model.SetService{Service: older}, model.SetService{Service: younger}), New(defaults)
	planner.Update(state, &model.Dirty{})
	want := func(what string, s *model.Service, has, lost []string) {
		t.Helper()
		e := planner.Evidence(state, s.Name)
		var gotHas, gotLost []string
		for _, f := range e.Frontends() {
			gotHas = append(gotHas, f.Text())
		}
		for _, l := range e.Lost() {
			gotLost = append(gotLost, l.Text()+" to "+l.To.Name)
		}
		wantEqual(t, what+" has", has, gotHas)
		wantEqual(t, what+" lost", lost, gotLost)
	}
	const external = "ExternalIP 198.51.100.9:80/TCP"
	want("older", older, []string{"ClusterIP 10.96.0.1:80/TCP", external}, nil)
	want("younger", younger, []string{"ClusterIP 10.96.0.2:80/TCP"}, []string{external + " to older"})

	again := *older
	again.Created = year(2019)
	follow(planner, state, model.SetService{Service: &again})
	want("older, created anew", &again, []string{"ClusterIP 10.96.0.1:80/TCP", external}, nil)

	follow(planner, state, model.DeleteService{Name: older.Name})
	want("the only one", younger, []string{"ClusterIP 10.96.0.2:80/TCP", external}, nil)
}
