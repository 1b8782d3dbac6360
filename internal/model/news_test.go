package model

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNewsCountEventsAndKeepWhatSetThemOff(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	triggered := func(name string, f Family, at time.Time) SetSlice {
		s := sliceOf("web", name)
		s.Family, s.Trigger = f, at
		return SetSlice{s}
	}
	tests := []struct {
		name string
		in   []Event
		want News
	}{
		{"nothing", nil, News{}},
		{"Services, known or not", []Event{SetService{&Service{Name: named("web")}}, DeleteService{named("web")}, DeleteService{named("x")}}, News{Services: 3}},
		{"slices without a trigger", []Event{SetSlice{sliceOf("web", "a")}, DeleteSlice{named("a")}}, News{Slices: 2}},
		{"what is neither", []Event{SetNode{}, SetServiceCIDR{&ServiceCIDR{Name: "x"}}, SetHostIPs{}}, News{}},
		{"a trigger for each change", []Event{triggered("a", IPv4, at(1)), triggered("b", IPv6, at(2)), triggered("a", IPv4, at(3))},
			News{Slices: 3, Triggers: []Trigger{{IPv4, at(1)}, {IPv6, at(2)}, {IPv4, at(3)}}}},
		{"a trigger seen before", []Event{triggered("a", IPv4, at(1)), triggered("a", IPv4, at(1))},
			News{Slices: 2, Triggers: []Trigger{{IPv4, at(1)}}}},
		{"the end of a slice has no trigger", []Event{triggered("a", IPv4, at(1)), DeleteSlice{named("a")}},
			News{Slices: 2, Triggers: []Trigger{{IPv4, at(1)}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var dirty Dirty
			NewState().Apply(&dirty, tt.in...)
			if diff := cmp.Diff(tt.want, dirty.News); diff != "" {
				t.Errorf("news (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewsOfTwoChangesAreAddedUp(t *testing.T) {
	first, second := Trigger{IPv4, time.Unix(1, 0)}, Trigger{IPv6, time.Unix(2, 0)}
	var sum News
	sum.Add(News{Services: 1, Slices: 2, Triggers: []Trigger{first}, Since: time.Unix(3, 0)})
	sum.Add(News{Services: 10, Slices: 20, Triggers: []Trigger{second}, Since: time.Unix(4, 0)})
	if diff := cmp.Diff(News{Services: 11, Slices: 22, Triggers: []Trigger{first, second}, Since: time.Unix(3, 0)}, sum); diff != "" {
		t.Errorf("sum (-want +got):\n%s", diff)
	}
}
