package printable_test

import (
	"testing"

	"sluice/internal/printable"
)

func TestSimilar(t *testing.T) {
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
		if got := printable.Similar(tt.word, tt.candidates); got != tt.want {
			t.Errorf("Similar(%q) is %q, want %q", tt.word, got, tt.want)
		}
	}
}
