package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func named(name string) Name { return Name{"default", name} }

func sliceOf(service, name string) *Slice { return &Slice{Name: named(name), Service: service} }

func sliceNames(s *State, service string) []string {
	out := []string{}
	for _, slice := range s.Slices(named(service)) {
		out = append(out, slice.Name.Name)
	}
	return out
}

func TestApplyMarksDirty(t *testing.T) {
	host := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	start := []Event{
		SetService{&Service{Name: named("web")}},
		SetSlice{sliceOf("web", "web-1")},
		SetNode{&Node{Name: "here"}},
		SetServiceCIDR{&ServiceCIDR{Name: "kubernetes"}},
		SetHostIPs{host},
	}
	tests := []struct {
		name     string
		in       []Event
		services []string
		node     bool
		raised   uint64
	}{
		{"nothing", nil, nil, false, 0},
		{"a new Service", []Event{SetService{&Service{Name: named("new")}}}, []string{"new"}, false, 1},
		{"a Service replaced", []Event{SetService{&Service{Name: named("web")}}}, []string{"web"}, false, 1},
		{"a Service deleted", []Event{DeleteService{named("web")}}, []string{"web"}, false, 1},
		{"an unknown Service deleted", []Event{DeleteService{named("x")}}, nil, false, 0},
		{"a new slice", []Event{SetSlice{sliceOf("web", "web-2")}}, []string{"web"}, false, 1},
		{"a slice of a Service that is not there", []Event{SetSlice{sliceOf("x", "x-1")}}, []string{"x"}, false, 1},
		{"a slice that moves makes both Services dirty", []Event{SetSlice{sliceOf("other", "web-1")}}, []string{"other", "web"}, false, 1},
		{"a slice deleted", []Event{DeleteSlice{named("web-1")}}, []string{"web"}, false, 1},
		{"an unknown slice deleted", []Event{DeleteSlice{named("x")}}, nil, false, 0},
		{"the node", []Event{SetNode{&Node{Name: "here", Zone: "a"}}}, nil, true, 1},
		{"the node deleted", []Event{SetNode{}}, nil, true, 1},
		{"a service CIDR", []Event{SetServiceCIDR{&ServiceCIDR{Name: "more"}}}, nil, true, 1},
		{"a service CIDR deleted", []Event{DeleteServiceCIDR{"kubernetes"}}, nil, true, 1},
		{"an unknown service CIDR deleted", []Event{DeleteServiceCIDR{"x"}}, nil, false, 0},
		{"other host addresses", []Event{SetHostIPs{nil}}, nil, true, 1},
		{"the same host addresses", []Event{SetHostIPs{slices.Clone(host)}}, nil, false, 0},
		{"several at once", []Event{SetNode{}, DeleteService{named("web")}, DeleteSlice{named("web-1")}}, []string{"web"}, true, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state := NewState()
			state.Apply(&Dirty{}, start...)
			before := state.Revision()

			var dirty Dirty
			state.Apply(&dirty, tt.in...)
			var services []string
			for _, n := range slices.SortedFunc(maps.Keys(dirty.Services), Name.Compare) {
				services = append(services, n.Name)
			}
			if diff := cmp.Diff(tt.services, services); diff != "" {
				t.Errorf("dirty Services (-want +got):\n%s", diff)
			}
			if dirty.Node != tt.node {
				t.Errorf("dirty node: %v", dirty.Node)
			}
			if raised := state.Revision() - before; raised != tt.raised {
				t.Errorf("revision raised by %d, want %d", raised, tt.raised)
			}
			if empty := len(tt.services) == 0 && !tt.node; dirty.Empty() != empty {
				t.Errorf("empty: %v", dirty.Empty())
			}
		})
	}
}

func TestAllDirtyListsNoServices(t *testing.T) {
	state, dirty := NewState(), Dirty{All: true}
	state.Apply(&dirty, SetService{&Service{Name: named("web")}}, SetSlice{sliceOf("web", "a")}, DeleteService{named("web")})
	if len(dirty.Services) != 0 || dirty.Empty() {
		t.Errorf("dirty Services %v, empty %v; want none, and not empty", dirty.Services, dirty.Empty())
	}
}

func TestSlicesBelongToOneServiceAtATime(t *testing.T) {
	tests := []struct {
		name       string
		in         []Event
		web, other []string
	}{
		{"in order of names", []Event{SetSlice{sliceOf("web", "b")}, SetSlice{sliceOf("web", "a")}}, []string{"a", "b"}, []string{}},
		{"moved", []Event{SetSlice{sliceOf("web", "a")}, SetSlice{sliceOf("other", "a")}}, []string{}, []string{"a"}},
		{"moved and back", []Event{SetSlice{sliceOf("web", "a")}, SetSlice{sliceOf("other", "a")}, SetSlice{sliceOf("web", "a")}}, []string{"a"}, []string{}},
		{"deleted after a move", []Event{SetSlice{sliceOf("web", "a")}, SetSlice{sliceOf("other", "a")}, DeleteSlice{named("a")}}, []string{}, []string{}},
		{"replaced", []Event{SetSlice{sliceOf("web", "a")}, SetSlice{sliceOf("web", "a")}}, []string{"a"}, []string{}},
		{"deleted and set again", []Event{SetSlice{sliceOf("web", "a")}, DeleteSlice{named("a")}, SetSlice{sliceOf("web", "a")}}, []string{"a"}, []string{}},
		{"the Service's end is not theirs", []Event{SetService{&Service{Name: named("web")}}, SetSlice{sliceOf("web", "a")}, DeleteService{named("web")}}, []string{"a"}, []string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state := NewState()
			state.Apply(&Dirty{}, tt.in...)
			if diff := cmp.Diff(tt.web, sliceNames(state, "web")); diff != "" {
				t.Errorf("slices of web (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.other, sliceNames(state, "other")); diff != "" {
				t.Errorf("slices of other (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSlicesAreNamespaced(t *testing.T) {
	state := NewState()
	state.Apply(&Dirty{},
		SetSlice{&Slice{Name: Name{"a", "s"}, Service: "web"}},
		SetSlice{&Slice{Name: Name{"b", "s"}, Service: "web"}},
		DeleteSlice{Name{"a", "s"}})
	if got := len(state.Slices(Name{"a", "web"})); got != 0 {
		t.Errorf("a/web has %d slices", got)
	}
	if got := len(state.Slices(Name{"b", "web"})); got != 1 {
		t.Errorf("b/web has %d slices", got)
	}
}

func TestStateGetters(t *testing.T) {
	state := NewState()
	web, node := &Service{Name: named("web")}, &Node{Name: "here"}
	first, second := sliceOf("web", "first"), sliceOf("web", "second")
	b, a := &ServiceCIDR{Name: "b"}, &ServiceCIDR{Name: "a"}
	ips := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	state.Apply(&Dirty{}, SetService{web}, SetSlice{second}, SetSlice{first}, SetNode{node}, SetServiceCIDR{b}, SetServiceCIDR{a}, SetHostIPs{ips})
	if state.Service(named("web")) != web || len(state.Services()) != 1 || state.Service(named("x")) != nil {
		t.Errorf("services: %v", state.Services())
	}
	if state.Slice(named("first")) != first || state.Slice(named("second")) != second || state.Slice(named("x")) != nil {
		t.Errorf("slices: %v", state.Slices(named("web")))
	}
	if state.Node() != node {
		t.Errorf("node: %v", state.Node())
	}
	if !slices.Equal(state.ServiceCIDRs(), []*ServiceCIDR{a, b}) {
		t.Errorf("service CIDRs are not in order: %v", state.ServiceCIDRs())
	}
	if !slices.Equal(state.HostIPs(), ips) {
		t.Errorf("host addresses: %v", state.HostIPs())
	}
}

func TestCloneIsIndependent(t *testing.T) {
	state := NewState()
	one := SetSlice{&Slice{Name: named("one"), Service: "web"}}
	state.Apply(&Dirty{}, SetService{&Service{Name: named("web")}}, one, SetServiceCIDR{&ServiceCIDR{Name: "a"}})
	clone := state.Clone()
	state.Apply(&Dirty{}, DeleteService{named("web")}, DeleteServiceCIDR{"a"}, SetNode{&Node{}},
		SetSlice{&Slice{Name: named("one"), Service: "web"}}, SetSlice{&Slice{Name: named("two"), Service: "web"}})
	if clone.Service(named("web")) == nil || clone.Node() != nil || len(clone.ServiceCIDRs()) != 1 ||
		!slices.Equal(clone.Slices(named("web")), []*Slice{one.Slice}) {
		t.Errorf("the clone followed: %+v", clone)
	}
	clone.Apply(&Dirty{}, DeleteSlice{named("one")})
	if got := len(state.Slices(named("web"))); got != 2 {
		t.Errorf("the original followed its clone, and has %d slices", got)
	}
}

func TestCounts(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	state := NewState()
	for step := range 2000 {
		service, slice := fmt.Sprint("svc-", chance.IntN(5)), fmt.Sprint("slice-", chance.IntN(12))
		set := sliceOf(service, slice)
		set.Endpoints = make([]Endpoint, chance.IntN(4))
		event := []Event{
			SetService{&Service{Name: named(service)}}, DeleteService{named(service)}, SetSlice{set}, DeleteSlice{named(slice)},
		}[chance.IntN(4)]
		state.Apply(&Dirty{}, event)
		var want Counts
		for name := range state.Services() {
			for _, s := range state.Slices(name) {
				want.Slices++
				want.Endpoints += len(s.Endpoints)
			}
		}
		if got := state.Counts(); got != want {
			t.Fatalf("the tally is %+v after step %d, %T, want %+v", got, step, event, want)
		}
	}
}
