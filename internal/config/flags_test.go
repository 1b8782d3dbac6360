package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func parse(t *testing.T, args ...string) *Configuration {
	t.Helper()
	c := New()
	fs := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	AddFlags(fs, c)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("flags %q: %v", args, err)
	}
	return c
}

func TestFlagsHaveTheNamesAndDefaultsOfUpstream(t *testing.T) {
	want := map[string]string{
		"proxy-mode":                "",
		"hostname-override":         "",
		"cluster-cidr":              "",
		"detect-local-mode":         "ClusterCIDR",
		"pod-bridge-interface":      "",
		"pod-interface-name-prefix": "",
		"nodeport-addresses":        "[]",
		"masquerade-all":            "false",
		"iptables-masquerade-bit":   "14",
		"iptables-sync-period":      "30s",
		"iptables-min-sync-period":  "1s",
		"feature-gates":             "",
		"v":                         "0",
		"vmodule":                   "",
	}
	fs := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	AddFlags(fs, New())
	got := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) { got[f.Name] = f.DefValue })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags and their defaults (-want +got):\n%s", diff)
	}
}

func TestFlagsSetTheirFields(t *testing.T) {
	tests := []struct {
		name string
		in   []string
		want func(*Configuration)
	}{
		{"nothing changes nothing", nil, func(*Configuration) {}},
		{"strings", []string{"--proxy-mode=nftables", "--hostname-override=n1", "--cluster-cidr=10.0.0.0/8",
			"--detect-local-mode=NodeCIDR", "--pod-bridge-interface=br0", "--pod-interface-name-prefix=veth"},
			func(c *Configuration) {
				c.Mode = ModeNFTables
				c.HostnameOverride = "n1"
				c.ClusterCIDR = "10.0.0.0/8"
				c.DetectLocalMode = LocalModeNodeCIDR
				c.DetectLocal.BridgeInterface = "br0"
				c.DetectLocal.InterfaceNamePrefix = "veth"
			}},
		{"lists, by comma and by repetition", []string{"--nodeport-addresses=primary,10.0.0.0/8", "--nodeport-addresses=all"},
			func(c *Configuration) { c.NodePortAddresses = []string{"primary", "10.0.0.0/8", "all"} }},
		{"masquerading holds for nftables too", []string{"--masquerade-all", "--iptables-masquerade-bit=9"},
			func(c *Configuration) {
				c.IPTables.MasqueradeAll, c.NFTables.MasqueradeAll = true, true
				*c.IPTables.MasqueradeBit, *c.NFTables.MasqueradeBit = 9, 9
			}},
		{"periods hold for nftables too", []string{"--iptables-sync-period=2m", "--iptables-min-sync-period=3s"},
			func(c *Configuration) {
				c.IPTables.SyncPeriod.Duration, c.NFTables.SyncPeriod.Duration = 2*time.Minute, 2*time.Minute
				c.IPTables.MinSyncPeriod.Duration, c.NFTables.MinSyncPeriod.Duration = 3*time.Second, 3*time.Second
			}},
		{"feature gates", []string{"--feature-gates=AllowServiceExternalIPs=false"},
			func(c *Configuration) { c.FeatureGates = map[string]bool{"AllowServiceExternalIPs": false} }},
		{"logging", []string{"-v4"}, func(c *Configuration) { c.Logging.Verbosity = 4 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := New()
			test.want(want)
			if diff := cmp.Diff(want, parse(t, test.in...)); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, arg := range []string{
		"--masquerade-all=maybe",
		"--iptables-masquerade-bit=many",
		"--iptables-sync-period=often",
		"--feature-gates=AllowServiceExternalIPs",
		"--v=loud",
	} {
		t.Run(arg, func(t *testing.T) {
			fs := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
			AddFlags(fs, New())
			if err := fs.Parse([]string{arg}); err == nil {
				t.Errorf("%s was accepted", arg)
			}
		})
	}
}
