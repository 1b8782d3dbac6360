package config

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

func parse(t *testing.T, args ...string) *Flags {
	t.Helper()
	fs := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	f := AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("flags %q: %v", args, err)
	}
	return f
}

// The file lists what upstream's kube-proxy has, by name, with its default.
func TestFlagsMatchUpstream(t *testing.T) {
	want, err := os.ReadFile("testdata/flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{}
	for _, s := range settings {
		paths[s.flag] = strings.Join(append([]string{s.path}, s.also...), " ")
	}
	fs := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	AddFlags(fs)
	var got strings.Builder
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name == "proxy-port-range" {
			return // upstream's had it as long as it had userspace mode
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name += " -" + f.Shorthand
		}
		if f.Deprecated != "" {
			name += " (deprecated)"
		}
		fmt.Fprintln(&got, strings.TrimRight(fmt.Sprintf("%s | %s | %s", name, f.DefValue, paths[f.Name]), " "))
	})
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}

func TestLogFlagsMatchOtherComponents(t *testing.T) {
	ours := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	AddFlags(ours)
	theirs := pflag.NewFlagSet("other", pflag.ContinueOnError)
	logsapi.AddFlags(&New().Logging, theirs)
	theirs.VisitAll(func(f *pflag.Flag) {
		got := ours.Lookup(f.Name)
		if got == nil {
			t.Errorf("there is no flag --%s", f.Name)
			return
		}
		if got.DefValue != f.DefValue || got.Shorthand != f.Shorthand || got.Value.Type() != f.Value.Type() {
			t.Errorf("--%s is -%s %s %s, want -%s %s %s", f.Name, got.Shorthand, got.Value.Type(), got.DefValue, f.Shorthand, f.Value.Type(), f.DefValue)
		}
	})
}

func TestEveryFlagIsDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	AddFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s has no help text", f.Name)
		}
		if !strings.Contains(string(docs), "`--"+f.Name) && f.Name != "v" {
			t.Errorf("--%s is not in docs/configuration.md", f.Name)
		}
	})
}

func TestDeprecatedFlagsNameTheirSuccessor(t *testing.T) {
	for flag, instead := range map[string]string{
		"--healthz-port=0": "--healthz-bind-address",
		"--metrics-port=0": "--metrics-bind-address",
	} {
		var out bytes.Buffer
		fs := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
		fs.SetOutput(&out)
		AddFlags(fs)
		if err := fs.Parse([]string{flag}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "deprecated") || !strings.Contains(out.String(), instead) {
			t.Errorf("%s says %q, want that it is deprecated, and %s", flag, out.String(), instead)
		}
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
				c.Mode = "nftables"
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
		{"logging", []string{"-v4", "--logging-format=json", "--log-flush-frequency=1s", "--log-json-split-stream"},
			func(c *Configuration) {
				c.Logging.Verbosity, c.Logging.Format = 4, "json"
				c.Logging.FlushFrequency.Duration.Duration = time.Second
				c.Logging.Options.JSON.SplitStream = true
			}},
		{"conntrack", []string{"--conntrack-max-per-core=0", "--conntrack-min=7", "--conntrack-tcp-timeout-established=0s",
			"--conntrack-tcp-be-liberal", "--conntrack-udp-timeout=3s"},
			func(c *Configuration) {
				*c.Conntrack.MaxPerCore, *c.Conntrack.Min = 0, 7
				c.Conntrack.TCPEstablishedTimeout.Duration = 0
				c.Conntrack.TCPBeLiberal = true
				c.Conntrack.UDPTimeout.Duration = 3 * time.Second
			}},
		{"client", []string{"--kubeconfig=/k", "--kube-api-qps=2.5", "--kube-api-burst=9"},
			func(c *Configuration) {
				c.ClientConnection.Kubeconfig, c.ClientConnection.QPS, c.ClientConnection.Burst = "/k", 2.5, 9
			}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := New()
			test.want(want)
			if diff := cmp.Diff(want, parse(t, test.in...).Configuration); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidFlagsAreRefused(t *testing.T) {
	for _, arg := range []string{
		"--masquerade-all=maybe",
		"--iptables-masquerade-bit=many",
		"--iptables-sync-period=often",
		"--feature-gates=AllowServiceExternalIPs",
		"--v=loud",
		"--kube-api-qps=fast",
		"--oom-score-adj=2147483648",
		"--log-text-info-buffer-size=lots",
	} {
		t.Run(arg, func(t *testing.T) {
			fs := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
			AddFlags(fs)
			if err := fs.Parse([]string{arg}); err == nil {
				t.Errorf("%s was accepted", arg)
			}
		})
	}
}
