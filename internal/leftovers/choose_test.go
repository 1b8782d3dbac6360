package leftovers

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// everyChain is what is removed when nothing is in use.
var everyChain = proxyChains.and(ipvsChains)

func TestOnlyNamesThatKubeProxyGivesAreIts(t *testing.T) {
	tests := []struct {
		name string
		want bool
	}{
		{"KUBE-SERVICES", true},
		{"KUBE-MARK-MASQ", true},
		{"KUBE-IPVS-OUT-FILTER", true},
		{"KUBE-SVC-NPX46M4PTMTKRN6Y", true},
		{"KUBE-XLB-ABCDEFGHIJKL2345", true},
		{"KUBE-SVC-NPX46M4PTMTKRN6", false},   // too short
		{"KUBE-SVC-NPX46M4PTMTKRN6YA", false}, // too long
		{"KUBE-SVC-npx46m4ptmtkrn6y", false},
		{"KUBE-SVC-NPX46M4PTMTKRN61", false}, // no digit of base 32
		{"KUBE-SVC-", false},
		{"KUBE-SERVICES-MINE", false},
		{"KUBE-FIREWALL", false},
		{"KUBE-MARK-DROP", false},
		{"KUBE-KUBELET-CANARY", false},
		{"KUBE-IPTABLES-HINT", false},
		{"KUBE-ROUTER-FORWARD", false},
		{"KUBE-POD-FW-ABCDEFGHIJKL2345", false},
		{"kube-services", false},
		{"PREROUTING", false},
		{"", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := everyChain.has(tt.name); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestSetsForIPv6HaveTheirNamesCutOff(t *testing.T) {
	tests := map[string]string{
		"KUBE-CLUSTER-IP":                "KUBE-6-CLUSTER-IP",
		"KUBE-LOAD-BALANCER-SOURCE-CIDR": "KUBE-6-LOAD-BALANCER-SOURCE-CID",
		"KUBE-NODE-PORT-LOCAL-SCTP-HASH": "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS",
	}
	for in, want := range tests {
		if got := ipv6Name(in); got != want {
			t.Errorf("%s is %s for IPv6, want %s", in, got, want)
		}
	}
}

func TestWhatIsRemovedFromATable(t *testing.T) {
	const svc, sep = "KUBE-SVC-AAAAAAAAAAAAAAAA", "KUBE-SEP-AAAAAAAAAAAAAAAA"
	base := map[string]bool{"PREROUTING": true, "OUTPUT": true}
	table := func(chains string, jumps ...jump) ruleset {
		r := ruleset{base: map[string]bool{}, jumps: jumps}
		for name := range base {
			r.base[name] = true
		}
		for _, name := range strings.Fields(chains) {
			r.base[name] = false
		}
		return r
	}
	tests := []struct {
		name string
		in   ruleset
		want removal
	}{
		{"nothing", table(""), removal{}},
		{"nothing of kube-proxy's", table("MINE", jump{"OUTPUT", "MINE", 1}), removal{}},
		{
			"a chain and the rules that lead into it",
			table("KUBE-SERVICES", jump{"PREROUTING", "KUBE-SERVICES", 1}, jump{"OUTPUT", "KUBE-SERVICES", 2}),
			removal{
				rules:  []jump{{"PREROUTING", "KUBE-SERVICES", 1}, {"OUTPUT", "KUBE-SERVICES", 2}},
				chains: []string{"KUBE-SERVICES"},
			},
		},
		{
			"chains that lead into each other",
			table("KUBE-SERVICES KUBE-MARK-MASQ "+svc+" "+sep, jump{"KUBE-SERVICES", svc, 1}, jump{svc, sep, 2}, jump{sep, "KUBE-MARK-MASQ", 3}),
			removal{chains: []string{"KUBE-MARK-MASQ", sep, "KUBE-SERVICES", svc}},
		},
		{
			"a chain that leads into a foreign one",
			table("KUBE-SERVICES KUBE-MARK-DROP", jump{"KUBE-SERVICES", "KUBE-MARK-DROP", 1}),
			removal{chains: []string{"KUBE-SERVICES"}},
		},
		{
			"a chain that a foreign one leads into, and all behind it",
			table("KUBE-SERVICES KUBE-MARK-MASQ MINE "+svc+" "+sep,
				jump{"PREROUTING", "KUBE-SERVICES", 1}, jump{"KUBE-SERVICES", svc, 2}, jump{"MINE", svc, 3}, jump{svc, sep, 4}, jump{sep, "KUBE-MARK-MASQ", 5}),
			removal{
				rules:  []jump{{"PREROUTING", "KUBE-SERVICES", 1}},
				chains: []string{"KUBE-SERVICES"},
				kept:   map[string]string{svc: "MINE", sep: svc, "KUBE-MARK-MASQ": sep},
			},
		},
		{
			"a rule that kube-proxy never has in a base chain",
			table("KUBE-MARK-MASQ", jump{"OUTPUT", "KUBE-MARK-MASQ", 1}),
			removal{kept: map[string]string{"KUBE-MARK-MASQ": "OUTPUT"}},
		},
		{
			"a base chain by kube-proxy's name",
			ruleset{base: map[string]bool{"KUBE-SERVICES": true, "OUTPUT": true}, jumps: []jump{{"KUBE-SERVICES", "KUBE-FORWARD", 1}}},
			removal{rules: []jump{{"KUBE-SERVICES", "KUBE-FORWARD", 1}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := choose(tt.in, everyChain)
			if len(got.kept) == 0 {
				got.kept = nil
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(removal{}, jump{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
