//lint:file-ignore SA1019 Endpoints is deprecated, and manifests still hold it.

package source

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/model"
)

func TestSlicesOfEndpoints(t *testing.T) {
	got := SlicesOfEndpoints(&v1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Subsets: []v1.EndpointSubset{
			{
				Addresses:         []v1.EndpointAddress{{IP: "10.0.0.1", NodeName: ptr("n1")}, {IP: "fd00::1"}},
				NotReadyAddresses: []v1.EndpointAddress{{IP: "10.0.0.2"}, {IP: "127.0.0.1"}},
				Ports:             []v1.EndpointPort{{Name: "http", Port: 8080}, {Name: "bad", Port: 0}},
			},
			{Addresses: []v1.EndpointAddress{{IP: "nonsense"}}, Ports: []v1.EndpointPort{{Port: 1}}},
			{},
		},
	})
	name := func(s string) model.Name { return model.Name{Namespace: "default", Name: s} }
	ports := []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}}
	ready := model.Ready | model.Serving
	want := []*model.Slice{
		{
			Name: name("endpoints:web:0:IPv4"), Service: "web", Family: model.IPv4, Ports: ports,
			Endpoints: []model.Endpoint{{Addr: addrs("10.0.0.1")[0], Node: "n1", Conditions: ready}, {Addr: addrs("10.0.0.2")[0]}},
		},
		{
			Name: name("endpoints:web:0:IPv6"), Service: "web", Family: model.IPv6, Ports: ports,
			Endpoints: []model.Endpoint{{Addr: addrs("fd00::1")[0], Conditions: ready}},
		},
		{
			Name: name("endpoints:web:1:IPv4"), Service: "web", Family: model.IPv4,
			Ports: []model.SlicePort{{Protocol: model.TCP, Port: 1}},
		},
	}
	if diff := cmp.Diff(want, got, compareAddrs, cmpopts.IgnoreFields(model.Slice{}, "Problems")); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"subsets[0].ports[1].port", "subsets[0].notReadyAddresses[1].ip"}, fields(got[0].Problems)); diff != "" {
		t.Errorf("problems (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"subsets[1].addresses[0].ip"}, fields(got[2].Problems)); diff != "" {
		t.Errorf("the problems of a subset without endpoints (-want +got)\n%s", diff)
	}
	headless := &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.IsHeadlessService: ""}}, Subsets: make([]v1.EndpointSubset, 1)}
	if got := SlicesOfEndpoints(headless); got != nil {
		t.Errorf("Endpoints of a headless Service were taken over: %v", got)
	}
}
