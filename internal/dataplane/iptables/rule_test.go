//go:build linux

package iptables

import (
	"net/netip"
	"testing"

	"sluice/internal/model"
)

func TestRulesAreWrittenAsListed(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("10.96.0.1/32"), netip.MustParsePrefix("fd00::1/128")
	for _, tc := range []struct {
		name string
		in   rule
		want string
	}{
		{"jump", rule{target: jump("KUBE-A")}, " -j KUBE-A"},
		{"everything", rule{notSource: true, source: netip.MustParsePrefix("10.244.0.0/16"), destination: v4, notIn: true, in: "cali+",
			protocol: "tcp", comment: "a/b:c", port: 80, last: 80, match: fromNode + chance(1, 3), target: dnat(netip.MustParseAddrPort("10.244.0.1:8080"))},
			` ! -s 10.244.0.0/16 -d 10.96.0.1/32 ! -i cali+ -p tcp -m comment --comment "a/b:c" -m tcp --dport 80 -m addrtype --src-type LOCAL` +
				` -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.244.0.1:8080`},
		{"IPv6", rule{destination: v6, protocol: "sctp", target: dnat(netip.MustParseAddrPort("[fd00::2]:80"))},
			" -d fd00::1/128 -p sctp -j DNAT --to-destination [fd00::2]:80"},
		{"range of ports", rule{protocol: "udp", port: 1024, last: 2047, target: leave("X")}, " -p udp -m udp --dport 1024:2047 -g X"},
		{"range of ports from zero", rule{protocol: "udp", last: 32767, target: leave("X")}, " -p udp -m udp --dport 0:32767 -g X"},
		{"all addresses", rule{source: netip.MustParsePrefix("0.0.0.0/0"), target: jump("X")}, " -j X"},
		{"certainty", rule{match: chance(3, 3), target: jump("X")}, " -j X"},
		{"comment that would end itself", rule{comment: "a\" -j DROP\n\\", target: jump("X")}, ` -m comment --comment "a? -j DROP??" -j X`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := string(tc.in.appendTo(nil)); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestTreeChainNames(t *testing.T) {
	v4 := serviceKey(netip.MustParseAddr("10.96.17.5"), model.TCP, 8080)
	v6 := serviceKey(netip.MustParseAddr("fd00::5"), model.TCP, 8080)
	for _, tc := range []struct {
		name        string
		in          prefix
		addressBits int
		want        string
	}{
		{"addresses", v4.prefix(20), 32, "KUBE-IP-10-96-16-0-20"},
		{"one address", v4.prefix(32), 32, "KUBE-IP-10-96-17-5-32"},
		{"ports", portKey(model.SCTP, 40000).prefix(protocolBits + 1), 0, "KUBE-IP-SCTP-32768-65535"},
		{"a protocol", portKey(model.UDP, 53).prefix(protocolBits), 0, "KUBE-IP-UDP"},
		{"address with ports", v4.prefix(32 + protocolBits + 4), 32, "KUBE-IP-OB6LN26Y6WJSKSLC"},
		{"IPv6", v6.prefix(120), 128, "KUBE-IP-4RYZFIZTNEPAZIMB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.in.chainName(addressesPrefix, tc.addressBits)
			if got != tc.want || len(got) > maxNameLen || !Owns(got) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestForeignChainsAreNotOwned(t *testing.T) {
	for _, chain := range []string{
		"KUBE-FIREWALL", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT", "KUBE-MARK-DROP", "KUBE-NODE-PORT",
		"KUBE-SVC-short", "KUBE-SVC-AAAAAAAAAAAAAAA1", "cali-PREROUTING", "PREROUTING", "DOCKER", "",
	} {
		if Owns(chain) {
			t.Errorf("%q counts as ours", chain)
		}
	}
	for _, chain := range []string{"KUBE-SERVICES", "KUBE-PROXY-CANARY", "KUBE-SVC-AAAAAAAAAAAAAAAA", "KUBE-SEP-ABCDEFGHIJKLMN27", "KUBE-XLB-AAAAAAAAAAAAAAAA"} {
		if !Owns(chain) {
			t.Errorf("%q does not count as ours", chain)
		}
	}
}

func TestChainsAreKubeProxys(t *testing.T) {
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
			if got := allChains.Has(tt.name); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
