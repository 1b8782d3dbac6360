package source

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A misspelled annotation changes nothing, which its author would not notice.
func TestUnknownAnnotations(t *testing.T) {
	const of = "metadata.annotations["
	for _, tt := range []struct{ annotations, service, slice string }{
		{"", "", ""},
		{"sluice/eject=true", "", of + "sluice/eject]: it means nothing: an EndpointSlice has no such annotation (use one of sluice/weight, or remove it)"},
		{"sluice/weight=5", of + "sluice/weight]: it means nothing: a Service has no such annotation (use one of sluice/algorithm, sluice/eject, sluice/forwarding, sluice/ports, sluice/source-ranges-apply-to, or remove it)", ""},
		{"sluice/port=1-2", of + "sluice/port]: it means nothing: a Service has no such annotation (did you mean sluice/ports?)", of + "sluice/port]: it means nothing"},
		{"sluice/source-range-apply-to=all", "(did you mean sluice/source-ranges-apply-to?)", "an EndpointSlice has no such annotation"},
		{"Sluice/Eject=true", "(did you mean sluice/eject?)", "an EndpointSlice has no such annotation"},
		{"example.com/sluice=true", "", ""},
	} {
		meta := metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: annotated(tt.annotations)}
		svc := &v1.Service{ObjectMeta: meta}
		svc.Spec.ClusterIP = "10.96.0.1"
		got, ok := Proxy{}.Service(svc)
		if !ok {
			t.Fatal("not served")
		}
		checkProblem(t, got.Problems, tt.service)
		slice, ok := Slice(&discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4})
		if !ok {
			t.Fatal("not used")
		}
		checkProblem(t, slice.Problems, tt.slice)
	}
}

// Who restricts the clients of a Service that has no load balancer would take it for closed.
func TestSourceRangesWithoutALoadBalancer(t *testing.T) {
	for typ, want := range map[v1.ServiceType]string{
		v1.ServiceTypeNodePort:     "spec.loadBalancerSourceRanges: everybody may connect",
		v1.ServiceTypeLoadBalancer: "",
	} {
		svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		svc.Spec.ClusterIP, svc.Spec.Type, svc.Spec.LoadBalancerSourceRanges = "10.96.0.1", typ, []string{"10.0.0.0/8"}
		got, _ := Proxy{}.Service(svc)
		checkProblem(t, got.Problems, want)
	}
}
