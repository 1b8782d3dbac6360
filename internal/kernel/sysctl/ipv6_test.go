package sysctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNoIPv6(t *testing.T) {
	tests := []struct {
		name string
		in   map[string]string
		want string // in the reason
	}{
		{"on", map[string]string{ipv6File: "", ipv6OffFile: "0\n"}, ""},
		{"switched off", map[string]string{ipv6File: "", ipv6OffFile: "1\n"}, ipv6OffFile + " is 1"},
		{"not in the kernel", nil, "the kernel has no IPv6"},
		{"not to be found out", map[string]string{ipv6File: ""}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for file, value := range tt.in {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := NoIPv6(Options{Root: root})
			if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("reason is %q, want %q", got, tt.want)
			}
		})
	}
}
