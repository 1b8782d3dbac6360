package spelling

import "testing"

func TestSimilar(t *testing.T) {
	for _, test := range []struct {
		written, meant string
		want           bool
	}{
		{"manifest", "manifests", true}, {"mainfests", "manifests", true}, {"kubeconfg", "kubeconfig", true}, {"wbe", "web", true}, {"", "v", true},
		{"clustercidr", "cluster-cidr", true}, {"ipta", "iptables-sync-period", true}, {"frobnicate", "feature-gates", false}, {"wacht", "watch", true}, {"web", "shop", false}, {"a", "bc", false},
	} {
		if got := Similar(test.written, test.meant); got != test.want {
			t.Errorf("Similar(%q, %q) is %v (distance %d)", test.written, test.meant, got, distance(test.written, test.meant))
		}
	}
}

func TestDidYouMean(t *testing.T) {
	if got := DidYouMean(nil); got != "" {
		t.Errorf("for nothing: %q", got)
	}
	if got := DidYouMean([]string{"a", "b", "c", "d"}); got != " (did you mean a or b or c?)" {
		t.Error(got)
	}
}

func TestNearest(t *testing.T) {
	for _, tt := range []struct {
		word       string
		candidates []string
		want       string
	}{
		{"Sevrice", []string{"Node", "Service"}, "Service"},
		{"clusterip", []string{"clusterIPs", "clusterIP"}, "clusterIP"},
		{"portz", []string{"type", "ports"}, "ports"},
		{"Pod", []string{"Node"}, ""},
		{"Role", []string{"Node"}, ""},
		{"Ingress", []string{"Service", "Node"}, ""},
		{"prot", []string{"port", "protocol"}, "port"},
		{"", []string{"a"}, ""},
		{"ab", []string{"ac"}, ""},
	} {
		if got := Nearest(tt.word, tt.candidates); got != tt.want {
			t.Errorf("Nearest(%q) is %q, want %q", tt.word, got, tt.want)
		}
	}
}
