package config

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/model"
	"sluice/internal/plan"
)

var compare = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestWhatAConfigurationMeans(t *testing.T) {
	const cidr = "--cluster-cidr=10.0.0.0/8"
	tests := []struct {
		name string
		in   []string
		want func(*Settings) // changes what cidr alone means
	}{
		{"defaults", []string{cidr}, func(*Settings) {}},
		{"mode nftables by name", []string{cidr, "--proxy-mode=nftables"}, func(*Settings) {}},
		{"ranges of both families", []string{"--cluster-cidr=10.1.2.3/8, fd00::/8"},
			func(s *Settings) { s.Plan.ClusterCIDRs = prefixes("10.0.0.0/8", "fd00::/8") }},
		{"pods of this node", []string{"--detect-local-mode=NodeCIDR"},
			func(s *Settings) { s.Plan.DetectLocal, s.Plan.ClusterCIDRs = plan.DetectNodeCIDR, nil }},
		{"pods behind a bridge", []string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cni0"},
			func(s *Settings) {
				s.Plan.DetectLocal, s.Plan.ClusterCIDRs = plan.DetectBridgeInterface, nil
				s.Plan.BridgeInterface = "cni0"
			}},
		{"pods behind interfaces", []string{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=cali"},
			func(s *Settings) {
				s.Plan.DetectLocal, s.Plan.ClusterCIDRs = plan.DetectInterfaceNamePrefix, nil
				s.Plan.InterfaceNamePrefix = "cali"
			}},
		{"node ports on some addresses", []string{cidr, "--nodeport-addresses=primary,192.168.7.9/16"},
			func(s *Settings) {
				s.Plan.NodePortAddresses = plan.NodePortAddresses{Primary: true, Prefixes: prefixes("192.168.0.0/16")}
			}},
		{"node ports on all addresses", []string{cidr, "--nodeport-addresses=all"},
			func(s *Settings) { s.Plan.NodePortAddresses = plan.NodePortAddresses{All: true} }},
		{"masquerading", []string{cidr, "--masquerade-all", "--iptables-masquerade-bit=31"},
			func(s *Settings) { s.Plan.MasqueradeAll, s.Plan.MasqueradeBit = true, 31 }},
		{"no external IPs", []string{cidr, "--feature-gates=AllowServiceExternalIPs=false"},
			func(s *Settings) { s.Plan.NoExternalIPs = true }},
		{"periods", []string{cidr, "--iptables-sync-period=1m", "--iptables-min-sync-period=1m"},
			func(s *Settings) { s.SyncPeriod, s.MinSyncPeriod = time.Minute, time.Minute }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := &Settings{
				Plan: plan.Config{
					DetectLocal:       plan.DetectClusterCIDR,
					ClusterCIDRs:      prefixes("10.0.0.0/8"),
					NodePortAddresses: plan.NodePortAddresses{Primary: true},
					MasqueradeBit:     14,
				},
				SyncPeriod: 30 * time.Second,
			}
			test.want(want)
			got, err := Resolve(parse(t, test.in...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, compare); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatDeservesAWarning(t *testing.T) {
	tests := []struct {
		name string
		in   []string
		want string // field
		then func(*Settings) bool
	}{
		{"nobody is known as a pod without a cluster CIDR", nil, "clusterCIDR",
			func(s *Settings) bool { return s.Plan.DetectLocal == plan.DetectNone }},
		{"localhost alone does not mean the primary addresses",
			[]string{"--detect-local-mode=NodeCIDR", "--nodeport-addresses=localhost"}, "nodePortAddresses[0]",
			func(s *Settings) bool {
				a := s.Plan.NodePortAddresses
				return !a.Primary && !a.All && len(a.Prefixes) > 0
			}},
		{"a loopback range is like localhost",
			[]string{"--detect-local-mode=NodeCIDR", "--nodeport-addresses=primary,127.0.0.0/8"}, "nodePortAddresses[1]",
			func(s *Settings) bool { return s.Plan.NodePortAddresses.Primary }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := Resolve(parse(t, test.in...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{test.want}, fields(t, s.Warnings)); diff != "" {
				t.Errorf("fields with a warning (-want +got):\n%s", diff)
			}
			if !test.then(s) {
				t.Errorf("settings are not as expected: %+v", s)
			}
		})
	}
}

func TestEachMistakeIsReportedWithItsField(t *testing.T) {
	tests := []struct {
		name string
		in   []string
		want []string
	}{
		{"mode that is not available", []string{"--proxy-mode=iptables"}, []string{"mode"}},
		{"cluster CIDR malformed", []string{"--cluster-cidr=10.0.0.0"}, []string{"clusterCIDR"}},
		{"cluster CIDR malformed though not used", []string{"--detect-local-mode=NodeCIDR", "--cluster-cidr=x"}, []string{"clusterCIDR"}},
		{"cluster CIDR with IPv4 in IPv6", []string{"--cluster-cidr=::ffff:10.0.0.0/104"}, []string{"clusterCIDR"}},
		{"two cluster CIDRs of one family", []string{"--cluster-cidr=10.0.0.0/8,11.0.0.0/8"}, []string{"clusterCIDR"}},
		{"empty part of a cluster CIDR", []string{"--cluster-cidr=10.0.0.0/8,"}, []string{"clusterCIDR"}},
		{"no such local mode", []string{"--detect-local-mode=Guess"}, []string{"detectLocalMode"}},
		{"bridge missing", []string{"--detect-local-mode=BridgeInterface"}, []string{"detectLocal.bridgeInterface"}},
		{"bridge too long", []string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=a23456789012345x"}, []string{"detectLocal.bridgeInterface"}},
		{"prefix missing", []string{"--detect-local-mode=InterfaceNamePrefix"}, []string{"detectLocal.interfaceNamePrefix"}},
		{"prefix with a slash", []string{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=a/b"}, []string{"detectLocal.interfaceNamePrefix"}},
		{"node port addresses", []string{"--nodeport-addresses=primary,everywhere,10.0.0.1"}, []string{"nodePortAddresses[1]", "nodePortAddresses[2]"}},
		{"bit too high", []string{"--iptables-masquerade-bit=32"}, []string{"nftables.masqueradeBit"}},
		{"bit negative", []string{"--iptables-masquerade-bit=-1"}, []string{"nftables.masqueradeBit"}},
		{"sync period of nothing", []string{"--iptables-sync-period=0s"}, []string{"nftables.syncPeriod"}},
		{"periods negative", []string{"--iptables-sync-period=-1s", "--iptables-min-sync-period=-1s"}, []string{"nftables.syncPeriod", "nftables.minSyncPeriod"}},
		{"periods the wrong way round", []string{"--iptables-sync-period=1s", "--iptables-min-sync-period=2s"}, []string{"nftables.minSyncPeriod"}},
		{"unknown gates", []string{"--feature-gates=Zeta=true,Alpha=false"}, []string{"featureGates.Alpha", "featureGates.Zeta"}},
		{"everything at once", []string{"--proxy-mode=ipvs", "--cluster-cidr=x", "--nodeport-addresses=y",
			"--iptables-masquerade-bit=99", "--iptables-sync-period=0s", "--feature-gates=No=true", "--detect-local-mode=Z"},
			[]string{"mode", "nodePortAddresses[0]", "nftables.masqueradeBit", "featureGates.No", "clusterCIDR", "detectLocalMode", "nftables.syncPeriod"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Resolve(parse(t, test.in...))
			var errs Errors
			if !errors.As(err, &errs) {
				t.Fatalf("error is %v, want an Errors", err)
			}
			if diff := cmp.Diff(test.want, fields(t, errs)); diff != "" {
				t.Errorf("fields with an error (-want +got):\n%s", diff)
			}
			if got := strings.Count(err.Error(), "\n") + 1; got != len(test.want) {
				t.Errorf("%d lines for %d errors:\n%v", got, len(test.want), err)
			}
		})
	}
}

// fields returns the fields of problems, and checks that each says enough.
func fields(t *testing.T, problems []model.Problem) []string {
	t.Helper()
	var out []string
	for _, p := range problems {
		if p.Reason == "" || p.Remedy == "" {
			t.Errorf("problem %q lacks a reason or a remedy", p)
		}
		out = append(out, p.Field)
	}
	return out
}

func TestUnavailableModeNamesWhatIsAvailable(t *testing.T) {
	_, err := Resolve(parse(t, "--proxy-mode=iptables"))
	if err == nil || !strings.Contains(err.Error(), `"iptables" is not available`) || !strings.Contains(err.Error(), "nftables") {
		t.Errorf("error does not say what is asked for and what there is: %v", err)
	}
}
