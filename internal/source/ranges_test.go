package source

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPortRanges(t *testing.T) {
	const one, several = "=UDP", "rtp=UDP control=TCP ctl=UDP sctp=SCTP"
	many := strings.TrimSuffix(strings.Repeat("7-7,", maxRanges+1), ",")
	for _, tt := range []struct {
		ports, annotation string
		want              string // ranges by port
		problems          string // what the first one says
	}{
		{one, "10000-20000", "[10000-20000]", ""},
		{one, " 10000 - 20000 , 7-7", "[10000-20000 7-7]", ""},
		{one, "1-65535", "[1-65535]", ""},
		{several, "rtp=10000-20000,control=5000-5010", "[10000-20000] [5000-5010] [] []", ""},
		{several, "rtp=10-20,control=10-20, rtp = 30-40", "[10-20 30-40] [10-20] [] []", ""},
		{several, "rtp=10-20,ctl=15-30,control=7-8", "[10-20] [7-8] [] []", `"ctl=15-30" is ignored: it overlaps 10-20 before it`},
		{several, "10-20,control=7-8", "[] [7-8] [] []", `"10-20" does not say which of 4 ports it extends`},
		{several, "video=10-20,control=7-8", "[] [7-8] [] []", `"video=10-20" is for a port that the Service does not have`},
		{several, "sctp=10-20", "[] [] [] []", "of SCTP"},
		{one, "20-10", "[]", `"20-10" ends at 10 before it begins at 20`},
		{one, "10", "[]", `"10" is not a range of ports`},
		{one, "", "[]", `"" is not a range of ports`},
		{one, "0-10", "[]", "not from 1 to 65535"},
		{one, "10-65536", "[]", "not from 1 to 65535"},
		{one, "a-b", "[]", "not from 1 to 65535"},
		{"", "10-20", "", "does not say which of 0 ports"},
		{one, many, "[7-7]", "overlaps 7-7"},
	} {
		svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{portsAnnotation: tt.annotation}}}
		svc.Spec.ClusterIP = "10.96.0.1"
		for i, p := range strings.Fields(tt.ports) {
			name, protocol, _ := strings.Cut(p, "=")
			svc.Spec.Ports = append(svc.Spec.Ports, v1.ServicePort{Name: name, Protocol: v1.Protocol(protocol), Port: int32(80 + i)})
		}
		got, _ := Proxy{}.Service(svc)
		var ranges []string
		for _, p := range got.Ports {
			ranges = append(ranges, fmt.Sprint(p.Ranges))
		}
		if text := strings.Join(ranges, " "); text != tt.want {
			t.Errorf("%q: %s, want %s", tt.annotation, text, tt.want)
		}
		switch {
		case tt.problems == "" && len(got.Problems) > 0:
			t.Errorf("%q: problems %v", tt.annotation, got.Problems)
		case tt.problems != "" && (len(got.Problems) == 0 || !strings.Contains(got.Problems[0].String(), "Service default/web: metadata.annotations[sluice/ports]: ") ||
			!strings.Contains(got.Problems[0].String(), tt.problems) || got.Problems[0].Remedy == ""):
			t.Errorf("%q: problems %v, want %q", tt.annotation, got.Problems, tt.problems)
		}
	}
}
