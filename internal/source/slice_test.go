package source

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice/internal/model"
)

func ptr[T any](v T) *T { return &v }

func slice(edit func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	edit(s)
	return s
}

func TestSlicesOfOthersAreLeftOut(t *testing.T) {
	for name, in := range map[string]*discoveryv1.EndpointSlice{
		"of a headless Service": slice(func(s *discoveryv1.EndpointSlice) { s.Labels[v1.IsHeadlessService] = "" }),
		"of host names":         slice(func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }),
		"of an unknown type":    slice(func(s *discoveryv1.EndpointSlice) { s.AddressType = "IPv5" }),
	} {
		t.Run(name, func(t *testing.T) {
			if out, ok := Slice(in); ok {
				t.Errorf("the slice was taken over: %+v", out)
			}
		})
	}
}

// A slice without the label is known, so that status can count it, and of no Service.
func TestSliceOfNoService(t *testing.T) {
	out, ok := Slice(slice(func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelServiceName) }))
	if !ok || out.Service != "" {
		t.Errorf("the slice is %+v, %t", out, ok)
	}
}

func TestSliceConditions(t *testing.T) {
	tests := []struct {
		name string
		in   discoveryv1.EndpointConditions
		want model.Conditions
	}{
		{"unset means ready", discoveryv1.EndpointConditions{}, model.Ready | model.Serving},
		{"unset means serving", discoveryv1.EndpointConditions{Ready: ptr(false)}, model.Serving},
		{
			"unset means serving while terminating", discoveryv1.EndpointConditions{Ready: ptr(false), Terminating: ptr(true)},
			model.Serving | model.Terminating,
		},
		{"serving while not ready", discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(true)}, model.Serving},
		{"ready but not serving", discoveryv1.EndpointConditions{Serving: ptr(false)}, model.Ready},
		{
			"draining", discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(true), Terminating: ptr(true)},
			model.Serving | model.Terminating,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := conditions(&tt.in); got != tt.want {
				t.Errorf("got %03b, want %03b", got, tt.want)
			}
		})
	}
}

func TestSliceConversion(t *testing.T) {
	got, ok := Slice(slice(func(s *discoveryv1.EndpointSlice) {
		s.UID = "b0b5"
		s.Ports = []discoveryv1.EndpointPort{
			{Port: ptr(int32(80))},
			{Name: ptr("all")},
			{Name: ptr("dns"), Protocol: ptr(v1.ProtocolUDP), Port: ptr(int32(53))},
			{Name: ptr("bad"), Port: ptr(int32(70000))},
			{Name: ptr("odd"), Protocol: ptr(v1.Protocol("GRE")), Port: ptr(int32(1))},
		}
		s.Endpoints = []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.1", "10.0.0.2"}, NodeName: ptr("n1")},
			{Addresses: []string{"::ffff:10.0.0.03"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(false)}},
			{},
			{Addresses: []string{"fd00::1"}},
			{Addresses: []string{"10.0.0.0x1"}},
			{Addresses: []string{"127.0.0.1"}},
			{Addresses: []string{"0.0.0.0"}},
			{Addresses: []string{"169.254.1.1"}},
			{Addresses: []string{"224.0.0.1"}},
			{Addresses: []string{"fe80::1%eth0"}},
		}
	}))
	if !ok {
		t.Fatal("the slice was left out")
	}
	want := &model.Slice{
		Name:    model.Name{Namespace: "default", Name: "web-1"},
		UID:     "b0b5",
		Service: "web",
		Family:  model.IPv4,
		Ports:   []model.SlicePort{{Protocol: model.TCP, Port: 80}, {Name: "dns", Protocol: model.UDP, Port: 53}},
		Endpoints: []model.Endpoint{
			{Addr: addrs("10.0.0.1")[0], Node: "n1", Conditions: model.Ready | model.Serving},
			{Addr: addrs("10.0.0.3")[0], Conditions: model.Serving},
		},
	}
	if diff := cmp.Diff(want, got, compareAddrs, cmpopts.IgnoreFields(model.Slice{}, "Problems")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	wantProblems := []string{"ports[3].port", "ports[4].protocol", "endpoints[2].addresses"}
	for i := 3; i < 10; i++ {
		wantProblems = append(wantProblems, fmt.Sprintf("endpoints[%d].addresses[0]", i))
	}
	if diff := cmp.Diff(wantProblems, fields(got.Problems)); diff != "" {
		t.Errorf("problems (-want +got)\n%s", diff)
	}
}

func TestTriggerOfSlicesAndEndpoints(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	tests := []struct {
		name, in string
		want     time.Time
	}{
		{"a time", "2026-01-02T03:04:05.6Z", at},
		{"a time of another zone", "2026-01-02T04:04:05.6+01:00", at},
		{"no time", "soon", time.Time{}},
		{"nothing", "", time.Time{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			annotations := map[string]string{v1.EndpointsLastChangeTriggerTime: tt.in}
			got, _ := Slice(slice(func(s *discoveryv1.EndpointSlice) { s.Annotations = annotations }))
			if got.Trigger != tt.want || len(got.Problems) > 0 {
				t.Errorf("slice: got %v and %v, want %v", got.Trigger, got.Problems, tt.want)
			}
			//lint:ignore SA1019 Endpoints is deprecated, and manifests still hold it.
			endpoints := SlicesOfEndpoints(&v1.Endpoints{
				ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: annotations},
				//lint:ignore SA1019 as above
				Subsets: []v1.EndpointSubset{{Addresses: []v1.EndpointAddress{{IP: "10.0.0.1"}}}},
			})
			if endpoints[0].Trigger != tt.want {
				t.Errorf("endpoints: got %v, want %v", endpoints[0].Trigger, tt.want)
			}
		})
	}
}

func TestEqualHintsAreShared(t *testing.T) {
	hints := func(zones, nodes []string) *discoveryv1.EndpointHints {
		h := &discoveryv1.EndpointHints{}
		for _, z := range zones {
			h.ForZones = append(h.ForZones, discoveryv1.ForZone{Name: z})
		}
		for _, n := range nodes {
			h.ForNodes = append(h.ForNodes, discoveryv1.ForNode{Name: n})
		}
		return h
	}
	list := []*discoveryv1.EndpointHints{
		hints([]string{"a"}, nil), hints([]string{"a"}, nil), hints([]string{"b"}, nil),
		hints([]string{"a", "b"}, []string{"n"}), hints([]string{"a", "b"}, []string{"n"}),
		hints([]string{"a"}, []string{"b"}), hints(nil, nil), nil,
	}
	got, _ := Slice(slice(func(s *discoveryv1.EndpointSlice) {
		for i, h := range list {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, Hints: h})
		}
	}))
	h := func(i int) *model.Hints { return got.Endpoints[i].Hints }
	if h(0) != h(1) || h(3) != h(4) {
		t.Error("equal hints are not shared")
	}
	want := []*model.Hints{
		{Zones: []string{"a"}}, {Zones: []string{"a"}}, {Zones: []string{"b"}},
		{Zones: []string{"a", "b"}, Nodes: []string{"n"}}, {Zones: []string{"a", "b"}, Nodes: []string{"n"}},
		{Zones: []string{"a"}, Nodes: []string{"b"}}, nil, nil,
	}
	for i := range want {
		if diff := cmp.Diff(want[i], h(i)); diff != "" {
			t.Errorf("hints of endpoint %d (-want +got)\n%s", i, diff)
		}
	}
}

func TestNodeConversion(t *testing.T) {
	got := Node(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{v1.LabelTopologyZone: "a"}},
		Spec:       v1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24", "fd00:1::/64", "10.1"}},
		Status: v1.NodeStatus{Addresses: []v1.NodeAddress{
			{Type: v1.NodeExternalIP, Address: "192.0.2.1"},
			{Type: v1.NodeHostName, Address: "n1"},
			{Type: v1.NodeInternalIP, Address: "10.9.0.1"},
			{Type: v1.NodeInternalIP, Address: "fd00:9::1"},
			{Type: v1.NodeExternalIP, Address: "10.9.0.1"},
			{Type: v1.NodeInternalIP, Address: "?"},
		}},
	})
	want := &model.Node{
		Name: "n1", Zone: "a",
		IPs:      addrs("10.9.0.1", "fd00:9::1", "192.0.2.1"),
		PodCIDRs: cidrs("10.1.0.0/24", "fd00:1::/64"),
	}
	if diff := cmp.Diff(want, got, compareAddrs, comparePrefixes, cmpopts.IgnoreFields(model.Node{}, "Problems")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"status.addresses[5].address", "spec.podCIDRs[2]"}, fields(got.Problems)); diff != "" {
		t.Errorf("problems (-want +got)\n%s", diff)
	}
	single := Node(&v1.Node{Spec: v1.NodeSpec{PodCIDR: "10.1.0.0/24"}})
	if diff := cmp.Diff(cidrs("10.1.0.0/24"), single.PodCIDRs, comparePrefixes); diff != "" {
		t.Errorf("a single pod CIDR (-want +got)\n%s", diff)
	}
}

func TestServiceCIDRConversion(t *testing.T) {
	got := ServiceCIDR(&networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00::/108", "10.96.0.0"}},
	})
	want := &model.ServiceCIDR{Name: "kubernetes", Prefixes: cidrs("10.96.0.0/16", "fd00::/108")}
	if diff := cmp.Diff(want, got, comparePrefixes, cmpopts.IgnoreFields(model.ServiceCIDR{}, "Problems")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"spec.cidrs[2]"}, fields(got.Problems)); diff != "" {
		t.Errorf("problems (-want +got)\n%s", diff)
	}
}

// TestQuarterMillionEndpointsStaySmall converts the slices one at a time, as a
// source does, so that only the values stay.
func TestQuarterMillionEndpointsStaySmall(t *testing.T) {
	const slices, perSlice, limit = 5000, 50, 60 << 20
	before := heap()
	out := make([]*model.Slice, 0, slices)
	for i := range slices {
		s, ok := Slice(bigSlice(i, perSlice))
		if !ok || len(s.Endpoints) != perSlice {
			t.Fatalf("slice %d was not taken over whole", i)
		}
		out = append(out, s)
	}
	used := int64(heap()) - int64(before)
	t.Logf("%d endpoints take %.1f MB", slices*perSlice, float64(used)/(1<<20))
	if used > limit {
		t.Errorf("%d endpoints take %d bytes, more than %d", slices*perSlice, used, limit)
	}
	runtime.KeepAlive(out)
}

func bigSlice(i, n int) *discoveryv1.EndpointSlice {
	s := slice(func(s *discoveryv1.EndpointSlice) {
		s.Name = fmt.Sprintf("service-%d-abcde", i)
		s.UID = types.UID(fmt.Sprintf("%08x-0000-4000-8000-000000000000", i))
		s.Labels[discoveryv1.LabelServiceName] = fmt.Sprintf("service-%d", i)
		s.Ports = []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(8080))}}
	})
	for j := range n {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, j+1)},
			NodeName:  ptr(fmt.Sprintf("node-%d.example.internal", (i+j)%1000)),
			Zone:      ptr("zone-a"),
			Hints:     &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: fmt.Sprintf("zone-%d", j%3)}}},
			TargetRef: &v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("pod-%d-%d", i, j)},
		})
	}
	return s
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
