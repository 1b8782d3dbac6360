package source

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNoRejectAnnotation(t *testing.T) {
	for _, tt := range []struct {
		annotations string
		want        bool
		problem     string
	}{
		{"", false, ""},
		{passAnnotation + "=true", true, ""},
		{passAnnotation + "=false", false, ""},
		{passAnnotation + "=Passthrough", false, `"Passthrough" is neither true nor false (use true or false)`},
	} {
		svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: annotated(tt.annotations)}}
		svc.Spec.ClusterIP = "10.96.0.1"
		got, ok := Proxy{}.Service(svc)
		if !ok || got.PassThrough != tt.want {
			t.Errorf("%q: %t, want %t", tt.annotations, got.PassThrough, tt.want)
		}
		checkProblem(t, got.Problems, tt.problem)
	}
}

func TestSourceRangesApplyTo(t *testing.T) {
	const of = "metadata.annotations[sluice/source-ranges-apply-to]: "
	for _, tt := range []struct {
		annotations string
		ranges      []string
		want        bool
		problem     string
	}{
		{"", []string{"10.0.0.0/8"}, false, ""},
		{"sluice/source-ranges-apply-to=all", []string{"10.0.0.0/8"}, true, ""},
		{"sluice/source-ranges-apply-to=load-balancer", []string{"10.0.0.0/8"}, false, ""},
		{"sluice/source-ranges-apply-to=All", []string{"10.0.0.0/8"}, false, of + `"All" is neither all nor load-balancer (use all or load-balancer)`},
		{"sluice/source-ranges-apply-to=all", nil, false, of + "there are no source ranges: everybody may connect"},
	} {
		svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: annotated(tt.annotations)}}
		svc.Spec.ClusterIP, svc.Spec.Type, svc.Spec.LoadBalancerSourceRanges = "10.96.0.1", v1.ServiceTypeLoadBalancer, tt.ranges
		got, ok := Proxy{}.Service(svc)
		if !ok || got.FilterAll != tt.want {
			t.Errorf("%q with %v: %t, want %t", tt.annotations, tt.ranges, got.FilterAll, tt.want)
		}
		checkProblem(t, got.Problems, tt.problem)
	}
}
