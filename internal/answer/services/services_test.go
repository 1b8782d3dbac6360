package services_test

import (
	"slices"
	"testing"
	"time"

	"sluice/internal/answer/services"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// The facts of a Service are its own: what others have wrong or lose is not among them.
func TestFactsOfServices(t *testing.T) {
	e := enginetest.New(t, plan.Config{NodeName: "node1", MasqueradeBit: 14})
	e.Start()
	odd := func(o model.Object) []model.Problem { return []model.Problem{{Object: o, Reason: "odd"}} }
	first, second := enginetest.Service("default/first", "10.96.0.1"), enginetest.Service("default/second", "10.96.0.1")
	third := enginetest.Service("shop/third", "10.96.0.3", func(s *model.Service) { s.Problems = odd(model.ServiceObject(s.Name)) })
	slice := enginetest.Slice(third.Service, "10.244.1.1@node1")
	slice.Problems = odd(model.SliceObject(slice.Name))
	gone := model.Object{Kind: "Service", Namespace: "shop", Name: "gone"}
	e.Sync(first, second, third, slice, model.SetInvalid{Problems: append(odd(gone), odd(model.ServiceObject(third.Name))...)})

	e.Inspect(func(v engine.View) {
		var names []string
		for _, s := range services.All(v, "shop") {
			names = append(names, s.Name.String())
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"shop/gone", "shop/third"}) {
			t.Errorf("in namespace shop are %v", names)
		}
		if n := len(services.All(v, "")); n != 4 {
			t.Errorf("there are %d Services in all", n)
		}
		for _, tt := range []struct {
			name                      model.Name
			frontends, lost, problems int
		}{{first.Name, 1, 0, 0}, {second.Name, 0, 1, 1}, {third.Name, 1, 0, 3}, {model.Name{Namespace: "shop", Name: "gone"}, 0, 0, 1}} {
			s := services.Read(v, tt.name)
			if len(s.Frontends()) != tt.frontends || len(s.Lost()) != tt.lost || len(s.Problems) != tt.problems {
				t.Errorf("%s has %v, lost %v, problems %v", tt.name, s.Frontends(), s.Lost(), s.Problems)
			}
		}
	})
}

func TestRates(t *testing.T) {
	before := dataplane.Traffic{Attempts: 10, Connections: 10}
	now := dataplane.Traffic{Attempts: 40, Connections: 20}
	now.Refused[plan.NoEndpoints], now.Refused[plan.SourceRanges] = 4, 16
	r, ok := services.RatesBetween(before, now, 2*time.Second)
	if !ok || r.Connections != 5 || r.Refused.Total() != 10 || r.Refused.Cause() != plan.SourceRanges {
		t.Errorf("rates are %+v, %t", r, ok)
	}
	if _, ok := services.RatesBetween(now, before, 2*time.Second); ok {
		t.Error("a reset is not noticed")
	}
	r.Add(r)
	if r.Connections != 10 || r.Refused.Total() != 20 {
		t.Errorf("the sum is %+v", r)
	}
}
