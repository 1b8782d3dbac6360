package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"sluice/internal/kernel/sysctl"
	"sluice/internal/plan"
)

// named resolves a command line, and a file if it is not empty.
func named(t *testing.T, file string, args ...string) (*Settings, error) {
	t.Helper()
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	f := AddFlags(set)
	f.AddOwn(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	if file == "" {
		return f.Settings()
	}
	return f.SettingsWith([]byte(file))
}

// A proxy beside another one has ports of its own, leaves the sysctls alone, and is told apart in the kernel. The
// only one of a node is as usual, whatever its name.
func TestNamedProxy(t *testing.T) {
	const file = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"
	const name = "--service-proxy-name=trial"
	for _, tt := range []struct {
		name, file      string
		args            []string
		health, metrics string
		instance        string
	}{
		{name: "no name", health: "0.0.0.0:10256", metrics: "127.0.0.1:10249"},
		{name: "by flags", args: []string{name}, health: "0.0.0.0:10266", metrics: "127.0.0.1:10269", instance: "trial"},
		{name: "by a file", file: file, args: []string{name}, health: "0.0.0.0:10266", metrics: "127.0.0.1:10269", instance: "trial"},
		{name: "IPv6", args: []string{name, "--bind-address=::"}, health: "[::]:10266", metrics: "[::1]:10269", instance: "trial"},
		{name: "other addresses", args: []string{name, "--healthz-bind-address=127.0.0.1", "--metrics-bind-address=0.0.0.0:9"},
			health: "127.0.0.1:10266", metrics: "0.0.0.0:9", instance: "trial"},
		{name: "an address in a file", file: file + "healthzBindAddress: 127.0.0.1:10256\n", args: []string{name},
			health: "127.0.0.1:10256", metrics: "127.0.0.1:10269", instance: "trial"},
		{name: "the only one", args: []string{name, "--all-services"}, health: "0.0.0.0:10256", metrics: "127.0.0.1:10249"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := named(t, tt.file, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Serving.Health.String() + " " + s.Serving.Metrics.String(); got != tt.health+" "+tt.metrics {
				t.Errorf("the servers are at %s", got)
			}
			if s.Instance != tt.instance || (s.Conntrack == sysctl.Conntrack{}) != (tt.instance != "") {
				t.Errorf("it is %q, with %+v", s.Instance, s.Conntrack)
			}
		})
	}
}

func TestWrongNamesAreRefused(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--service-proxy-name=a/b"}, `no Service can be labelled "a/b"`},
		{[]string{"--service-proxy-name=" + strings.Repeat("a", 64)}, "no more than 63"},
		{[]string{"--service-proxy-name=a", "--proxy-mode=iptables"}, "set --proxy-mode to nftables or userspace"},
		{[]string{"--service-proxy-name=a", "--proxy-mode=ipvs"}, "--service-proxy-name: in ipvs mode"},
		{[]string{"--all-services"}, "without --service-proxy-name"},
		{[]string{"--proxy-mode=ipvs", "--feature-gates=KubeProxyIPVS=false"}, "feature gate KubeProxyIPVS is off, which forbids proxy mode ipvs"},
	} {
		if _, err := named(t, "", tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %s", tt.args, err, tt.want)
		}
	}
	for _, args := range [][]string{
		{"--service-proxy-name=a", "--proxy-mode=userspace"}, {"--service-proxy-name=a", "--all-services", "--proxy-mode=iptables"},
		{"--proxy-mode=nftables", "--feature-gates=KubeProxyIPVS=false"},
	} {
		if _, err := named(t, "", args...); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// The flags about exposure are about rules, also beside a file, and say what is wrong with them.
func TestExposureFlags(t *testing.T) {
	const file = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"
	for _, tt := range []struct {
		name, file string
		args       []string
		ranges     string
		loopback   plan.UnservedLoopback
		err        string
	}{
		{name: "none", ranges: "[]"},
		{name: "ranges", args: []string{"--external-ip-ranges=198.51.100.7/24,2001:db8::/32"}, ranges: "[198.51.100.0/24 2001:db8::/32]"},
		{name: "beside a file", file: file, args: []string{"--external-ip-ranges=198.51.100.0/24"}, ranges: "[198.51.100.0/24]"},
		{name: "an address", args: []string{"--external-ip-ranges=198.51.100.7"}, err: "write 198.51.100.7/32 for this address alone"},
		{name: "no range", args: []string{"--external-ip-ranges=all"}, err: `--external-ip-ranges: "all" is not a range`},
		{name: "the gate", args: []string{"--feature-gates=KubeProxyNFTablesLocalhostNodePorts=true"}, ranges: "[]", loopback: plan.UnservedCount},
		{name: "the gate elsewhere", args: []string{"--feature-gates=KubeProxyNFTablesLocalhostNodePorts=true", "--proxy-mode=iptables"}, ranges: "[]"},
		{name: "reject", file: file, args: []string{"--reject-localhost-nodeports"}, ranges: "[]", loopback: plan.UnservedReject},
		{name: "reject elsewhere", args: []string{"--reject-localhost-nodeports", "--proxy-mode=iptables"}, err: "not in iptables mode"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := named(t, tt.file, tt.args...)
			switch {
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("the error is %v, want %q", err, tt.err)
			case tt.err != "":
			case err != nil:
				t.Error(err)
			case fmt.Sprint(s.Plan.ExternalIPRanges) != tt.ranges || s.Plan.UnservedLoopback != tt.loopback:
				t.Errorf("ranges %v, loopback %v", s.Plan.ExternalIPRanges, s.Plan.UnservedLoopback)
			}
		})
	}
}
