package sysctl

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRouteLocalnet(t *testing.T) {
	tests := []struct {
		name string
		in   map[string]string // route_localnet by interface
		want []string
	}{
		{"none", map[string]string{"all": "0\n", "default": "0\n", "eth0": "0\n", "lo": "0\n"}, nil},
		{"one", map[string]string{"all": "0\n", "eth0": "1\n", "eth1": "0\n"}, []string{"eth0"}},
		{"those to come", map[string]string{"all": "0\n", "default": "1\n", "eth0": "0\n"}, []string{"default"}},
		{"all of them", map[string]string{"all": "1\n", "default": "1\n", "eth0": "1\n"}, []string{"all"}},
		{"loopback itself needs no such setting", map[string]string{"all": "0\n", "lo": "1\n"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, value := range tt.in {
				dir := filepath.Join(root, interfacesDir, name)
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "route_localnet"), []byte(value), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := RouteLocalnet(Options{Root: root})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("interfaces (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRouteLocalnetWithoutProc(t *testing.T) {
	if got, err := RouteLocalnet(Options{Root: t.TempDir()}); err == nil {
		t.Errorf("no error, but %v", got)
	}
}
