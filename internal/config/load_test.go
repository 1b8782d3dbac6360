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
	c, problems, err := Decode([]byte(text))
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
			_, _, err := Load(path)
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
	_, _, err := Load(path)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("error is %v, want that %s does not exist", err, path)
	}
}
