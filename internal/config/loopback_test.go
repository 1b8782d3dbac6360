package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoopbackNodePorts(t *testing.T) {
	const four, six = "127.0.0.1", "::1"
	const gate = "--feature-gates=KubeProxyNFTablesLocalhostNodePorts="
	tests := []struct {
		name string
		in   []string
		want []string
	}{
		{"nftables, by default", nil, nil},
		{"nftables, all addresses", []string{"--nodeport-addresses=all"}, nil},
		{"nftables, a range that includes them", []string{"--nodeport-addresses=0.0.0.0/0,::/0"}, nil},
		{"nftables, by the word", []string{"--nodeport-addresses=primary,localhost"}, []string{four, six}},
		{"nftables, all and the word", []string{"--nodeport-addresses=all,localhost"}, []string{four, six}},
		{"nftables, by a range of IPv4", []string{"--nodeport-addresses=primary,127.0.0.0/8"}, []string{four}},
		{"nftables, by an address", []string{"--nodeport-addresses=127.0.0.1/32"}, []string{four}},
		{"nftables, by a range of IPv6", []string{"--nodeport-addresses=::1/128"}, []string{six}},
		{"nftables, by a range without them", []string{"--nodeport-addresses=127.0.0.53/32"}, nil},
		{"nftables, gate on", []string{"--nodeport-addresses=localhost", gate + "true"}, []string{four, six}},
		{"nftables, gate on, but nothing named", []string{gate + "true"}, nil},
		{"nftables, gate off", []string{"--nodeport-addresses=localhost", gate + "false"}, nil},
		{"nftables, the flag of iptables mode", []string{"--nodeport-addresses=localhost", "--iptables-localhost-nodeports=false"}, []string{four, six}},
		{"iptables, by default", []string{"--proxy-mode=iptables"}, []string{four}},
		{"iptables, all addresses", []string{"--proxy-mode=iptables", "--nodeport-addresses=all"}, []string{four}},
		{"iptables, a range that includes them", []string{"--proxy-mode=iptables", "--nodeport-addresses=0.0.0.0/0,::/0"}, []string{four}},
		{"iptables, primary addresses", []string{"--proxy-mode=iptables", "--nodeport-addresses=primary"}, nil},
		{"iptables, by the word", []string{"--proxy-mode=iptables", "--nodeport-addresses=localhost"}, []string{four, six}},
		{"iptables, the gate of nftables mode", []string{"--proxy-mode=iptables", gate + "false"}, []string{four}},
		{"iptables, switched off", []string{"--proxy-mode=iptables", "--iptables-localhost-nodeports=false"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := parse(t, append(tt.in, "--cluster-cidr=10.0.0.0/8")...).Settings()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, ip := range s.Plan.NodePortAddresses.Loopback {
				got = append(got, ip.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("loopback addresses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLocalhostAloneExcludesPrimary(t *testing.T) {
	s, err := parse(t, "--cluster-cidr=10.0.0.0/8", "--nodeport-addresses=localhost").Settings()
	if err != nil {
		t.Fatal(err)
	}
	isLoopback := func(p netip.Prefix) bool { return p.Addr().IsLoopback() }
	where := s.Plan.NodePortAddresses
	if where.Primary || where.All || len(where.Prefixes) == 0 || !isLoopback(where.Prefixes[0]) {
		t.Errorf("node ports answer on %+v", where)
	}
	if len(s.Warnings) > 0 {
		t.Errorf("there are warnings: %v", s.Warnings)
	}
}

func TestDisabledLoopbackNamesTheField(t *testing.T) {
	tests := []struct {
		name string
		in   []string
		want string
	}{
		{"gate", []string{"--feature-gates=KubeProxyNFTablesLocalhostNodePorts=false"}, "nodePortAddresses: node ports are not served on loopback addresses: feature gate KubeProxyNFTablesLocalhostNodePorts is false"},
		{"flag", []string{"--proxy-mode=iptables", "--iptables-localhost-nodeports=false"}, "nodePortAddresses: node ports are not served on loopback addresses: iptables.localhostNodePorts is false"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := parse(t, append(tt.in, "--cluster-cidr=10.0.0.0/8", "--nodeport-addresses=localhost")...).Settings()
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0].String(), tt.want) {
				t.Errorf("warnings are %v, want one that says %q", s.Warnings, tt.want)
			}
		})
	}
}
