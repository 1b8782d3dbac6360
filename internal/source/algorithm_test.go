package source

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/model"
)

// annotated splits "key=value key=value".
func annotated(text string) map[string]string {
	out := map[string]string{}
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		out[key] = value
	}
	return out
}

func TestAlgorithmAnnotations(t *testing.T) {
	tests := []struct {
		annotations string
		want        model.Algorithm
		problem     string
	}{
		{"", model.Random, ""},
		{"sluice/algorithm=random", model.Random, ""},
		{"sluice/algorithm=round-robin", model.RoundRobin, ""},
		{"sluice/algorithm=source-hash", model.SourceHash, ""},
		{"sluice/algorithm=maglev", model.Maglev, ""},
		{"sluice/algorithm=least-connections", model.LeastConnections, ""},
		{"kube-router.io/service.scheduler=rr", model.RoundRobin, ""},
		{"kube-router.io/service.scheduler=lc", model.LeastConnections, ""},
		{"kube-router.io/service.scheduler=sh", model.SourceHash, ""},
		{"kube-router.io/service.scheduler=mh", model.Maglev, ""},
		{"service.cilium.io/lb-algorithm=maglev", model.Maglev, ""},
		{"service.cilium.io/lb-algorithm=random", model.Random, ""},
		{"service.cilium.io/lb-algorithm=maglev kube-router.io/service.scheduler=mh", model.Maglev, ""},
		{"sluice/algorithm=Maglev", model.Random,
			`metadata.annotations[sluice/algorithm]: "Maglev" is not an algorithm (use random, round-robin, source-hash, maglev or least-connections)`},
		{"sluice/algorithm=", model.Random, `"" is not an algorithm`},
		{"kube-router.io/service.scheduler=dh", model.Random,
			`metadata.annotations[kube-router.io/service.scheduler]: "dh" is not an algorithm (use rr, lc, sh or mh, or sluice/algorithm instead)`},
		{"sluice/algorithm=round-robin service.cilium.io/lb-algorithm=maglev", model.RoundRobin,
			`metadata.annotations[service.cilium.io/lb-algorithm]: "maglev" is ignored: the annotation sluice/algorithm says otherwise (remove one of the two)`},
		{"sluice/algorithm=nonsense service.cilium.io/lb-algorithm=maglev", model.Maglev, `"nonsense" is not an algorithm`},
	}
	for _, tt := range tests {
		t.Run(tt.annotations, func(t *testing.T) {
			svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: annotated(tt.annotations)}}
			svc.Spec.ClusterIP = "10.96.0.1"
			got, ok := Proxy{}.Service(svc)
			if !ok || got.Algorithm != tt.want {
				t.Errorf("%s, want %s", got.Algorithm, tt.want)
			}
			checkProblem(t, got.Problems, tt.problem)
		})
	}
}

func TestEjectAnnotation(t *testing.T) {
	for _, tt := range []struct {
		annotations, want, problem string
	}{
		{"", "", ""},
		{"sluice/eject=true", "true", ""},
		{"sluice/eject=false", "false", ""},
		{"sluice/eject=yes", "", `metadata.annotations[sluice/eject]: "yes" is neither true nor false (use true or false)`},
	} {
		svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: annotated(tt.annotations)}}
		svc.Spec.ClusterIP = "10.96.0.1"
		got, ok := Proxy{}.Service(svc)
		text := ""
		if got.Eject != nil {
			text = fmt.Sprint(*got.Eject)
		}
		if !ok || text != tt.want {
			t.Errorf("%q means %q, want %q", tt.annotations, text, tt.want)
		}
		checkProblem(t, got.Problems, tt.problem)
	}
}

func checkProblem(t *testing.T, got []model.Problem, want string) {
	t.Helper()
	if text := fmt.Sprint(got); want == "" && len(got) > 0 || len(got) > 1 || !strings.Contains(text, want) {
		t.Errorf("problems %s, want %q", text, want)
	}
}

func TestWeightAnnotations(t *testing.T) {
	tests := []struct {
		annotations string
		want        int // -1 for none
		problem     string
	}{
		{"", -1, ""},
		{"sluice/weight=0", 0, ""},
		{"sluice/weight=65535", 65535, ""},
		{"service.cilium.io/weight=7", 7, ""},
		{"service.cilium.io/weight=7 sluice/weight=7", 7, ""},
		{"service.cilium.io/weight=7 sluice/weight=8", 8,
			`metadata.annotations[service.cilium.io/weight]: "7" is ignored: the annotation sluice/weight says otherwise`},
		{"sluice/weight=65536", -1, `metadata.annotations[sluice/weight]: "65536" is not a weight (use a number from 0 to 65535)`},
		{"sluice/weight=-1", -1, `"-1" is not a weight`},
		{"sluice/weight=1.5", -1, `"1.5" is not a weight`},
		{"sluice/weight=", -1, `"" is not a weight`},
		{"sluice/weight=many service.cilium.io/weight=7", 7, `"many" is not a weight`},
	}
	for _, tt := range tests {
		t.Run(tt.annotations, func(t *testing.T) {
			out, ok := Slice(slice(func(s *discoveryv1.EndpointSlice) { s.Annotations = annotated(tt.annotations) }))
			got := -1
			if ok && out.Weight != nil {
				got = int(*out.Weight)
			}
			if got != tt.want {
				t.Errorf("weight %d, want %d", got, tt.want)
			}
			checkProblem(t, out.Problems, tt.problem)
		})
	}
}
