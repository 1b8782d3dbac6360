package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/config/configtest"
	"sluice/internal/model"
)

const header = configtest.Header

func decode(t *testing.T, text string) (*Configuration, []model.Problem) {
	t.Helper()
	c, problems, err := (&Flags{}).decode([]byte(text))
	if err != nil {
		t.Fatalf("%v, in:\n%s", err, text)
	}
	return c, problems
}

func TestDefaultsUseUpstreamNames(t *testing.T) {
	want, err := os.ReadFile("testdata/defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := parse(t, "--write-config-to=somewhere").Settings()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := Write(path, s.Configuration); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("written configuration (-want +got):\n%s", diff)
	}
}

func TestFileOverridesDefaults(t *testing.T) {
	tests := []struct {
		name, in string
		want     func(*Configuration)
	}{
		{"nothing", header, func(*Configuration) {}},
		{"nothing, between marks", "# mine\n---\n" + header + "---\n# the end\n", func(*Configuration) {}},
		{"JSON", `{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration","clusterCIDR":"10.0.0.0/8"}`,
			func(c *Configuration) { c.ClusterCIDR = "10.0.0.0/8" }},
		{"zeros of a configuration that a tool wrote mean the defaults",
			header + "iptables: {masqueradeBit: null, localhostNodePorts: null, syncPeriod: 0s, minSyncPeriod: 0s}\n" +
				"nftables: {syncPeriod: 0s, minSyncPeriod: 0s, masqueradeBit: null}\n" +
				"conntrack: {maxPerCore: null, min: null, tcpEstablishedTimeout: null}\nclientConnection: {qps: 0, burst: 0}\n",
			func(*Configuration) {}},
		{"addresses without ports get them", header + "healthzBindAddress: 10.0.0.1\nmetricsBindAddress: \"::1\"\n",
			func(c *Configuration) { c.HealthzBindAddress, c.MetricsBindAddress = "10.0.0.1:10256", "[::1]:10249" }},
		{"servers follow the family of bindAddress", header + "bindAddress: \"::\"\n",
			func(c *Configuration) {
				c.BindAddress, c.HealthzBindAddress, c.MetricsBindAddress = "::", "[::]:10256", "[::1]:10249"
			}},
		{"a least period of nftables mode is one, even if it is upstream's", header + "nftables: {minSyncPeriod: 1s}\n",
			func(c *Configuration) { c.NFTables.MinSyncPeriod.Duration = time.Second }},
		{"in mode iptables, the nftables section is apart", header + "mode: iptables\niptables: {masqueradeAll: true, minSyncPeriod: 5s}\n",
			func(c *Configuration) {
				c.Mode, c.IPTables.MasqueradeAll, c.IPTables.MinSyncPeriod.Duration = "iptables", true, 5*time.Second
			}},
		{"in mode nftables, the iptables section is apart", header + "mode: nftables\niptables: {masqueradeAll: true}\n",
			func(c *Configuration) { c.Mode, c.IPTables.MasqueradeAll = "nftables", true }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := New()
			test.want(want)
			got, problems := decode(t, test.in)
			if len(problems) > 0 {
				t.Errorf("problems: %v", problems)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownAndDuplicateFieldsAreIgnored(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string // fields
	}{
		{"unknown", header + "clusterCIDR: 10.0.0.0/8\nclusterCidr: 11.0.0.0/8\n", []string{"clusterCidr"}},
		{"unknown in a section", header + "clusterCIDR: 10.0.0.0/8\nnftables: {masquerade: true}\n", []string{"nftables.masquerade"}},
		{"twice", header + "clusterCIDR: 11.0.0.0/8\nclusterCIDR: 10.0.0.0/8\n", []string{"clusterCIDR"}},
		{"a second document", "# first\n---\n" + header + "clusterCIDR: 10.0.0.0/8\n---\nkind: Other\n", []string{""}},
		{"all of them", header + "clusterCIDR: 10.0.0.0/8\none: 1\ntwo: 2\n", []string{"one", "two"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, problems := decode(t, test.in)
			if diff := cmp.Diff(test.want, fields(t, problems)); diff != "" {
				t.Errorf("fields that were ignored (-want +got):\n%s", diff)
			}
			if c.ClusterCIDR != "10.0.0.0/8" {
				t.Errorf("clusterCIDR is %s: the rest of the file was not read", c.ClusterCIDR)
			}
		})
	}
}

// A mistake in a file is named by field and line, with what to write instead.
func TestMistakesInAFileAreExplained(t *testing.T) {
	tests := []struct {
		name, in string
		want     string // errors or, if there are none, warnings and notes
	}{
		{"list for a string", "clusterCIDR: [10.244.0.0/16]\n",
			`KubeProxyConfiguration: clusterCIDR: line 3: there is a list where a string belongs (write "10.244.0.0/16")`},
		{"lists of both families for a string", "clusterCIDR:\n- 10.244.0.0/16\n- fd00::/64\n",
			`KubeProxyConfiguration: clusterCIDR: line 3: there is a list where a string belongs (write "10.244.0.0/16,fd00::/64")`},
		{"string for a list", "mode: nftables\nnodePortAddresses: primary\n",
			`KubeProxyConfiguration: nodePortAddresses: line 4: there is a string where a list belongs (write ["primary"])`},
		{"number for a duration", "iptables:\n  syncPeriod: 30\n",
			`KubeProxyConfiguration: iptables.syncPeriod: line 4: there is a number where a duration belongs (write 30s for seconds)`},
		{"duration in words", "nftables: {syncPeriod: 30 sec}\n",
			`KubeProxyConfiguration: nftables.syncPeriod: line 3: "30 sec" is not a duration (write numbers with units, such as 30s, 5m or 1h30m)`},
		{"mapping for a size", "logging: {options: {json: {infoBufferSize: {Format: 1}}}}\n",
			`KubeProxyConfiguration: logging.options.json.infoBufferSize: line 3: there is a mapping where a size belongs (write a number of bytes, such as 64Ki)`},
		{"word for a number", "clientConnection: {qps: fast}\n",
			`KubeProxyConfiguration: clientConnection.qps: line 3: there is a string where a number belongs (write a number)`},
		{"number for a string", "hostnameOverride: 12\n",
			`KubeProxyConfiguration: hostnameOverride: line 3: there is a number where a string belongs (put the value in quotes)`},
		{"number for a boolean", "iptables: {masqueradeAll: 1}\n",
			`KubeProxyConfiguration: iptables.masqueradeAll: line 3: there is a number where a boolean belongs (write true or false)`},
		{"string for a section", "conntrack: none\n",
			`KubeProxyConfiguration: conntrack: line 3: there is a string where a mapping belongs (write a mapping)`},
		{"number that is too large", "oomScoreAdj: 99999999999\n",
			`KubeProxyConfiguration: oomScoreAdj: line 3: 99999999999 is not a value that this field can have (write a whole number)`},
		{"number in a list", "nodePortAddresses: [primary, 10]\n",
			`KubeProxyConfiguration: nodePortAddresses[1]: line 3: there is a number where a string belongs (put the value in quotes)`},
		{"several", "oomScoreAdj: low\nclusterCIDR: [10.0.0.0/8]\niptables: {masqueradeAll: yes}\n",
			"KubeProxyConfiguration: oomScoreAdj: line 3: there is a string where a whole number belongs (write a whole number)\n" +
				`KubeProxyConfiguration: clusterCIDR: line 4: there is a list where a string belongs (write "10.0.0.0/8")`},
		{"indentation", " mode: nftables\n",
			"it is not YAML: line 3: it cannot be parsed: mapping values are not allowed in this context (correct the syntax there or above it: indentation, brackets or quotes)"},
		{"tab", "iptables:\n\tmasqueradeAll: true\n", `it is not YAML: line 4: the line is indented with a tab, which YAML does not allow (indent it with spaces)`},
		{"field twice", "clusterCIDR: 10.0.0.0/8\nmode: nftables\nmode: iptables\n",
			"KubeProxyConfiguration: mode: the field is there more than once; the one in line 5 counts (keep one of them)"},
		{"unknown mode", "mode: nftable\nclusterCIDR: 10.0.0.0/8\n",
			`KubeProxyConfiguration: mode: proxy mode "nftable" is not available (set mode to one of nftables, iptables, ipvs, userspace, or leave it empty)`},
		{"address for a range of node ports", "nodePortAddresses: [192.0.2.10]\nclusterCIDR: 10.0.0.0/8\n",
			`KubeProxyConfiguration: nodePortAddresses[0]: "192.0.2.10" is not a range in CIDR notation (write 192.0.2.10/32 for this address alone)`},
		{"IPv6 address for a range of pods", "clusterCIDR: fd00::1\n",
			`KubeProxyConfiguration: clusterCIDR: "fd00::1" is not a range in CIDR notation (write fd00::1/128 for this address alone)`},
		{"address in a range", "clusterCIDR: 10.244.0.1/16\n",
			"KubeProxyConfiguration: clusterCIDR: 10.244.0.1/16 is taken for the whole range 10.244.0.0/16 (write 10.244.0.0/16)"},
		{"address of the metrics server", "metricsBindAddress: here\nclusterCIDR: 10.0.0.0/8\n",
			`KubeProxyConfiguration: metricsBindAddress: "here" is not an address with a port (set metricsBindAddress to an IP address, or to one with a port such as 0.0.0.0:10249 or [::]:10249)`},
		{"field of a section that shares its flag", "mode: nftables\nnftables: {masqueradeBit: 77}\nclusterCIDR: 10.0.0.0/8\n",
			"KubeProxyConfiguration: nftables.masqueradeBit: 77 is not a bit of the packet mark (set nftables.masqueradeBit to a number from 0 to 31)"},
		{"no pods are recognised", "mode: nftables\n",
			"KubeProxyConfiguration: clusterCIDR: traffic from pods is not recognised: detect-local-mode is ClusterCIDR, but there is no cluster CIDR (set clusterCIDR, or another detectLocalMode)"},
		{"scheduler", "mode: ipvs\nclusterCIDR: 10.0.0.0/8\nipvs: {scheduler: rrr}\n",
			`KubeProxyConfiguration: ipvs.scheduler: Linux has no scheduler "rrr": unless a module ip_vs_rrr was added to this node, no Service can be served ` +
				"(set ipvs.scheduler to one of rr, wrr, lc, wlc, lblc, lblcr, dh, sh, mh, sed, nq, fo, ovf, twos)"},
		{"scheduler that nothing uses", "mode: nftables\nclusterCIDR: 10.0.0.0/8\nipvs: {scheduler: rrr}\n",
			"KubeProxyConfiguration: ipvs.scheduler: it has no effect: it is for proxy mode ipvs, and the mode is nftables (leave it out)"},
		{"period of a mode that is not chosen", "clusterCIDR: 10.0.0.0/8\niptables: {syncPeriod: -30s}\nnftables: {syncPeriod: 10s}\n",
			"KubeProxyConfiguration: iptables.syncPeriod: -30s is not positive; nothing uses it now (set iptables.syncPeriod to a positive duration such as 30s)\n" +
				"KubeProxyConfiguration: iptables.syncPeriod: it has no effect: it is for proxy mode iptables, and the mode is nftables (leave it out)"},
		{"period of the mode that an empty one means", "clusterCIDR: 10.0.0.0/8\nnftables: {syncPeriod: -30s}\n",
			"KubeProxyConfiguration: nftables.syncPeriod: -30s is not positive (set nftables.syncPeriod to a positive duration such as 30s)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			s, err := parse(t).SettingsWith([]byte(header + test.in))
			if err != nil {
				got = err.Error()
			} else {
				got = Errors(append(s.Warnings, s.Notes...)).Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// With flags, the remedies name flags.
func TestMistakesInFlagsAreExplained(t *testing.T) {
	for _, test := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--proxy-mode=nftable"}, "set --proxy-mode to one of"},
		{[]string{"--metrics-bind-address=here"}, "set --metrics-bind-address to"},
		{[]string{"--iptables-masquerade-bit=77"}, "set --iptables-masquerade-bit to a number"},
	} {
		if _, err := parse(t, test.flags...).Settings(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: the error is %v, want %q", test.flags, err, test.want)
		}
	}
}

func TestInvalidFilesAreRefused(t *testing.T) {
	tests := []struct {
		name, in string
		want     error // or
		says     string
	}{
		{"empty", "", ErrEmpty, ""},
		{"blanks and comments", "  \n# soon\n---\n# more\n", ErrEmpty, ""},
		{"no version", "kind: KubeProxyConfiguration\n", ErrVersion, "kubeproxy.config.k8s.io/v1alpha1"},
		{"no kind", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n", ErrVersion, `kind ""`},
		{"neither", "clusterCIDR: 10.0.0.0/8\n", ErrVersion, "kubeproxy.config.k8s.io/v1alpha1"},
		{"a version of the future", "apiVersion: kubeproxy.config.k8s.io/v9\nkind: KubeProxyConfiguration\n", ErrVersion, `"kubeproxy.config.k8s.io/v9"`},
		{"another kind", "apiVersion: v1\nkind: ConfigMap\n", ErrVersion, "KubeProxyConfiguration"},
		{"written by half", header + "nftables: {masquer", nil, "YAML"},
		{"no YAML", "\t{", nil, "YAML"},
		{"a list", "- 1\n", nil, "YAML"},
		{"a word for a number", header + "oomScoreAdj: low\n", nil, "oomScoreAdj"},
		{"a duration without a unit", header + "configSyncPeriod: 15 minutes\n", nil, "minutes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(test.in), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := (&Flags{}).read(path)
			if err == nil {
				t.Fatal("it was accepted")
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the file or %q is not in: %v", test.says, err)
			}
		})
	}
}

func TestUnreadableFileIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing.yaml")
	_, _, err := (&Flags{}).read(path)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("error is %v, want that %s does not exist", err, path)
	}
}
