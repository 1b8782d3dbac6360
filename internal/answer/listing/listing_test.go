package listing

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// world has a Service in each state.
func world(t *testing.T) *enginetest.Engine {
	e := enginetest.New(t, plan.Config{NodeName: "node1", MasqueradeBit: 14})
	e.Dataplane.Set(func(b *enginetest.Behaviour) { b.Refuse[netip.MustParseAddr("10.96.0.3")] = errors.New("no room") })
	e.Start()
	web, local := enginetest.Service("default/web", "10.96.0.1"), enginetest.Service("default/local", "10.96.0.4", func(s *model.Service) {
		s.Ports[0].NodePort, s.ExternalPolicy = 30080, model.PolicyLocal
	})
	failing, problem := enginetest.Service("shop/failing", "10.96.0.3"), enginetest.Service("shop/problem", "10.96.0.5", func(s *model.Service) {
		s.Problems = []model.Problem{{Object: model.Object{Kind: "Service", Namespace: "shop", Name: "problem"}, Field: "spec.x", Reason: "wrong", Remedy: "mend it"}}
	})
	e.Sync(web, local, failing, problem, enginetest.Service("shop/empty", "10.96.0.2"),
		enginetest.Slice(web.Service, "10.244.1.1@node1", "10.244.2.1@node2"), enginetest.Slice(local.Service, "10.244.2.1@node2"),
		enginetest.Slice(failing.Service, "10.244.1.1@node1"), enginetest.Slice(problem.Service, "10.244.1.1@node1"),
		model.SetHostIPs{IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		model.SetInvalid{Problems: []model.Problem{{Object: model.Object{Kind: "Service", Namespace: "shop", Name: "refused"}, Field: "spec.ports", Reason: "none", Remedy: "add one"}}})
	return e
}

func judge(e *enginetest.Engine) func(engine.View) *verdict.Judge {
	return func(v engine.View) *verdict.Judge { return &verdict.Judge{View: v, Phase: e.Frontend} }
}

func states(l *List) (out []string) {
	for _, s := range l.Services {
		out = append(out, s.Namespace+"/"+s.Name+" "+string(s.Word))
	}
	return out
}

func TestStates(t *testing.T) {
	e := world(t)
	lister := New(Options{Engine: e.Engine, Judge: judge(e), Proxy: serves, Node: "node1", Clock: clock.RealClock{}})
	tests := []struct {
		name  string
		query Query
		want  []string
	}{
		{"all", Query{}, []string{"default/local works-for-some", "default/web works", "shop/empty refused", "shop/failing no-answer", "shop/problem works", "shop/refused refused"}},
		{"of a namespace", Query{Namespace: "default"}, []string{"default/local works-for-some", "default/web works"}},
		{"failing", Query{Failing: true}, []string{"shop/empty refused", "shop/failing no-answer", "shop/problem works", "shop/refused refused"}},
		{"few", Query{Limit: 1}, []string{"default/local works-for-some"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := lister.List(t.Context(), test.query)
			if err != nil || !slices.Equal(states(got), test.want) {
				t.Errorf("%q, %v\nwant %q", states(got), err, test.want)
			}
		})
	}
	list, err := lister.List(t.Context(), Query{})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := Write(&text, list); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"NAMESPACE  NAME     VERDICT          ENDPOINTS  LOCAL  FRONTENDS                              WHY\n",
		"default    web      works            2          1      10.96.0.1:80/TCP",
		"default    local    works for some   1          0      10.96.0.4:80/TCP, node port 30080/TCP  not for clients outside: no endpoint on this node\n",
		"shop       empty    REFUSED          0          0      10.96.0.2:80/TCP                       no EndpointSlice\n",
		"shop       failing  DOES NOT ANSWER ", "  ! 10.96.0.3:80/TCP: no room\n",
		"  ! Service shop/refused: spec.ports: none (add one)\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
}

// Endpoints with an address of each family count once, as pods do.
func TestEndpointsOfTwoFamilies(t *testing.T) {
	e := enginetest.New(t, plan.Config{NodeName: "node1", MasqueradeBit: 14})
	e.Start()
	web := enginetest.Service("default/web", "10.96.0.1", func(s *model.Service) { s.ClusterIPs = testkit.Addrs("10.96.0.1", "fd00::1") })
	v6 := enginetest.Slice(web.Service, "fd01::1@node1", "fd01::2@node2")
	v6.Name.Name, v6.Family = "web-2", model.IPv6
	e.Sync(web, v6, enginetest.Slice(web.Service, "10.244.1.1@node1", "10.244.2.1@node2", "10.244.2.2@node2"))
	got, err := New(Options{Engine: e.Engine, Judge: judge(e), Proxy: serves, Clock: clock.RealClock{}}).List(t.Context(), Query{})
	if err != nil || len(got.Services) != 1 || got.Services[0].Endpoints != 3 || got.Services[0].Local != 1 {
		t.Errorf("got %+v, %v; want 3 endpoints, one of them local", got.Services, err)
	}
}

// A mode that counts nothing says so, in place of the columns.
func TestTopWithoutCounters(t *testing.T) {
	e := world(t)
	lister := New(Options{Engine: e.Engine, Judge: judge(e), Proxy: serves, Clock: clock.RealClock{}})
	for top, want := range map[bool]int{true: 1, false: 0} {
		list, err := lister.List(t.Context(), Query{Top: top})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := Write(&text, list); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text.String(), "Note: the mode of this proxy does not count connections"); n != want {
			t.Errorf("with --top %t, the note is there %d times:\n%s", top, n, text.String())
		}
	}
}

func TestPendingService(t *testing.T) {
	e := world(t)
	hold := make(chan struct{})
	defer close(hold)
	e.Dataplane.Set(func(b *enginetest.Behaviour) { b.Hold = hold })
	late := enginetest.Service("default/late", "10.96.0.9")
	e.Source.Update(late, enginetest.Slice(late.Service, "10.244.1.1@node1"))
	lister := New(Options{Engine: e.Engine, Judge: judge(e), Proxy: serves, Clock: clock.RealClock{}})
	testkit.Until(t, func() bool {
		got, err := lister.List(t.Context(), Query{Namespace: "default"})
		return err == nil && slices.Contains(states(got), "default/late unknown")
	})
}

func TestTopMeasuresRates(t *testing.T) {
	e := world(t)
	fake := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	lister := New(Options{Engine: e.Engine, Judge: judge(e), Proxy: serves, Traffic: e.Dataplane.Traffic, Clock: fake})
	count := func(n int64) {
		e.Dataplane.Set(func(b *enginetest.Behaviour) {
			b.Connections[plan.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}] = n
			b.Connections[plan.Key{Addr: netip.MustParseAddr("10.96.0.4"), Port: 80, Protocol: model.TCP}] = 10 * n
		})
	}
	count(100)
	done := make(chan *List)
	go func() {
		list, err := lister.List(t.Context(), Query{Top: true, Interval: metav1.Duration{Duration: 2 * time.Second}})
		if err != nil {
			t.Error(err)
		}
		done <- list
	}()
	testkit.Until(t, fake.HasWaiters)
	count(140)
	fake.Step(2 * time.Second)
	list := <-done
	if first := list.Services[0]; !list.Rated || first.Name != "local" || first.Connections != 200 || list.Services[1].Connections != 20 {
		t.Errorf("%+v", list)
	}
	var text strings.Builder
	if err := Write(&text, list); err != nil || !strings.Contains(text.String(), "CONN/S") || !strings.Contains(text.String(), "  200 ") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func serves() verdict.Proxy { return verdict.Proxy{Word: verdict.Serving} }
