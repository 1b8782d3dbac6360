//go:build linux

package iptables

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/netns/netnstest"
)

// TestMain gives the tests a lock of their own: the host's is shared by all network
// namespaces.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "iptables-test")
	if err != nil {
		panic(err)
	}
	os.Setenv("XTABLES_LOCKFILE", filepath.Join(dir, "lock"))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// install replaces the installed commands by scripts.
func install(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, does := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+does+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	was := searchPath
	searchPath = nil
	t.Cleanup(func() { searchPath = was })
}

func TestMissingCommandsAreNamed(t *testing.T) {
	install(t, nil)
	for _, v := range []Variant{AutoVariant, NFT, Legacy} {
		if _, err := Find(t.Context(), v, 0); !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "install the package iptables") {
			t.Errorf("%v: %v", v, err)
		}
	}
	if err := Installed(); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("Installed: %v", err)
	}
}

func TestCommandsAreFoundByNameOrVersion(t *testing.T) {
	const legacy, modern, old = "echo 'v1.8.9 (legacy)'", "echo 'v1.8.9 (nf_tables)'", "echo v1.6.0"
	tests := []struct {
		name string
		in   map[string]string
		want string // the command that saves
	}{
		{"none", nil, ""},
		{"named legacy", map[string]string{"iptables-legacy-save": legacy, "iptables-legacy-restore": legacy, "iptables-save": modern, "iptables-restore": modern}, "iptables-legacy-save"},
		{"legacy without the name", map[string]string{"iptables-save": legacy, "iptables-restore": legacy}, "iptables-save"},
		{"from before there were two variants", map[string]string{"iptables-save": old, "iptables-restore": old}, "iptables-save"},
		{"of the other variant", map[string]string{"iptables-save": modern, "iptables-restore": modern}, ""},
		{"half of them", map[string]string{"iptables-legacy-save": legacy}, ""},
		{"of the other family", map[string]string{"ip6tables-legacy-save": legacy, "ip6tables-legacy-restore": legacy}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			install(t, tt.in)
			got, err := Find(t.Context(), Legacy, 0)
			if tt.want == "" {
				if !errors.Is(err, ErrNotInstalled) {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if err != nil || filepath.Base(got.save[inet.IPv4]) != tt.want {
				t.Errorf("got %+v, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestVariantIsThatOfTheHost(t *testing.T) {
	const hint = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n"
	const canary = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
	const rules = "*filter\n-A INPUT -j ACCEPT\n-A INPUT -j ACCEPT\nCOMMIT\n"
	for _, tt := range []struct {
		name        string
		nft, legacy string
		want        Variant
	}{
		{"nothing there", "", "", defaultVariant(t.Context())},
		{"kubelet uses nft", hint, rules, NFT},
		{"kubelet uses legacy", rules, hint, Legacy},
		{"older kubelet uses legacy", rules, canary, Legacy},
		{"others use legacy", "", rules, Legacy},
		{"others use nft", rules, "", NFT},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := netnstest.New(t)
			for command, text := range map[string]string{"iptables-nft-restore": tt.nft, "ip6tables-legacy-restore": tt.legacy} {
				if text != "" {
					ns.Run(t, text, command, "--noflush")
				}
			}
			commands, err := Find(t.Context(), AutoVariant, ns.FD())
			if err != nil {
				t.Fatal(err)
			}
			if commands.Variant != tt.want {
				t.Errorf("chose %s, want %s", commands.Variant, tt.want)
			}
		})
	}
}

func TestRefusedLine(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int
	}{
		{"iptables-restore: line 4 failed", 4},
		{"iptables-restore v1.8.9 (nf_tables): line 17: RULE_APPEND failed (Invalid argument): rule in chain X", 17},
		{`iptables-restore v1.8.9 (legacy): Bad IP address "x" Error occurred at line: 3 Try it`, 3},
		{"Permission denied (you must be root)", 0},
		{"line", 0},
	} {
		if got := RefusedLine(&CommandError{Message: tt.in}); got != tt.want {
			t.Errorf("%q: line %d, want %d", tt.in, got, tt.want)
		}
	}
}

// Each word is compared, and the first difference jumps to the refusal.
func TestSameAddressBytecode(t *testing.T) {
	if got, want := SameAddressBytecode(inet.IPv4), "6,32 0 0 12,7 0 0 0,32 0 0 16,29 0 1 0,6 0 0 65535,6 0 0 0"; got != want {
		t.Errorf("IPv4: %s", got)
	}
	want := "18,32 0 0 8,7 0 0 0,32 0 0 24,29 0 13 0,32 0 0 12,7 0 0 0,32 0 0 28,29 0 9 0," +
		"32 0 0 16,7 0 0 0,32 0 0 32,29 0 5 0,32 0 0 20,7 0 0 0,32 0 0 36,29 0 1 0,6 0 0 65535,6 0 0 0"
	if got := SameAddressBytecode(inet.IPv6); got != want {
		t.Errorf("IPv6: %s", got)
	}
}
