//go:build linux

package iptables

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kubeChains are some names of chains of a kube-proxy.
var kubeChains = Chains{
	Entry: []string{"KUBE-SERVICES", "KUBE-FORWARD"},
	Has: func(chain string) bool {
		switch chain {
		case "KUBE-SERVICES", "KUBE-FORWARD", "KUBE-MARK-MASQ":
			return true
		}
		return strings.HasPrefix(chain, "KUBE-SVC-") || strings.HasPrefix(chain, "KUBE-SEP-")
	},
}

func TestChooseRemovesUnusedChains(t *testing.T) {
	const svc, sep = "KUBE-SVC-AAAAAAAAAAAAAAAA", "KUBE-SEP-AAAAAAAAAAAAAAAA"
	base := map[string]bool{"PREROUTING": true, "OUTPUT": true}
	table := func(chains string, rules ...jump) jumps {
		r := jumps{builtin: map[string]bool{}, rules: rules}
		for name := range base {
			r.builtin[name] = true
		}
		for _, name := range strings.Fields(chains) {
			r.builtin[name] = false
		}
		return r
	}
	tests := []struct {
		name string
		in   jumps
		want removal
	}{
		{"nothing", table(""), removal{}},
		{"nothing of kube-proxy's", table("MINE", jump{"OUTPUT", "MINE", 1, ""}), removal{}},
		{
			"a chain and the rules that lead into it",
			table("KUBE-SERVICES", jump{"PREROUTING", "KUBE-SERVICES", 1, ""}, jump{"OUTPUT", "KUBE-SERVICES", 2, ""}),
			removal{
				rules:  []jump{{"PREROUTING", "KUBE-SERVICES", 1, ""}, {"OUTPUT", "KUBE-SERVICES", 2, ""}},
				chains: []string{"KUBE-SERVICES"},
			},
		},
		{
			"chains that lead into each other",
			table("KUBE-SERVICES KUBE-MARK-MASQ "+svc+" "+sep, jump{"KUBE-SERVICES", svc, 1, ""}, jump{svc, sep, 2, ""}, jump{sep, "KUBE-MARK-MASQ", 3, ""}),
			removal{chains: []string{"KUBE-MARK-MASQ", sep, "KUBE-SERVICES", svc}},
		},
		{
			"a chain that leads into a foreign one",
			table("KUBE-SERVICES KUBE-MARK-DROP", jump{"KUBE-SERVICES", "KUBE-MARK-DROP", 1, ""}),
			removal{chains: []string{"KUBE-SERVICES"}},
		},
		{
			"a chain that a foreign one leads into, and all behind it",
			table("KUBE-SERVICES KUBE-MARK-MASQ MINE "+svc+" "+sep,
				jump{"PREROUTING", "KUBE-SERVICES", 1, ""}, jump{"KUBE-SERVICES", svc, 2, ""}, jump{"MINE", svc, 3, ""}, jump{svc, sep, 4, ""}, jump{sep, "KUBE-MARK-MASQ", 5, ""}),
			removal{
				rules:  []jump{{"PREROUTING", "KUBE-SERVICES", 1, ""}},
				chains: []string{"KUBE-SERVICES"},
				kept:   map[string]string{svc: "MINE", sep: svc, "KUBE-MARK-MASQ": sep},
			},
		},
		{
			"a rule that kube-proxy never has in a base chain",
			table("KUBE-MARK-MASQ", jump{"OUTPUT", "KUBE-MARK-MASQ", 1, ""}),
			removal{kept: map[string]string{"KUBE-MARK-MASQ": "OUTPUT"}},
		},
		{
			"a base chain by kube-proxy's name",
			jumps{builtin: map[string]bool{"KUBE-SERVICES": true, "OUTPUT": true}, rules: []jump{{"KUBE-SERVICES", "KUBE-FORWARD", 1, ""}}},
			removal{rules: []jump{{"KUBE-SERVICES", "KUBE-FORWARD", 1, ""}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := choose(tt.in, kubeChains)
			if len(got.kept) == 0 {
				got.kept = nil
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(removal{}, jump{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
