package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	webManifest  = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: NodePort, clusterIP: 10.96.0.1, ports: [{port: 80, nodePort: 30080}]}\n"
	nodeManifest = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n"
)

func dirWith(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRenderAndDiffWithoutAProxy(t *testing.T) {
	good := dirWith(t, map[string]string{"web.yaml": webManifest, "node.yaml": nodeManifest})
	nodeless := dirWith(t, map[string]string{"web.yaml": webManifest})
	bad := dirWith(t, map[string]string{"web.yaml": webManifest, "node.yaml": nodeManifest, "bad.yaml": "kind: Service\n"})
	cidr := dirWith(t, map[string]string{"web.yaml": webManifest, "node.yaml": nodeManifest,
		"cidr.yaml": "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: more}\nspec: {cidrs: [10.97.0.0/16]}\n"})
	empty := dirWith(t, map[string]string{"node.yaml": nodeManifest})
	config := filepath.Join(dirWith(t, map[string]string{"c.yaml": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nclusterCIDR: 10.0.0.0/8\n"}), "c.yaml")
	ours := filepath.Join(dirWith(t, map[string]string{"c.yaml": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nclusterCIDR: 10.0.0.0/8\n"}), "c.yaml")
	tests := []struct {
		name     string
		in       string
		want     int
		out, err string // in what is written
	}{
		{"nftables", "render --cluster-cidr 10.0.0.0/8 --node n1 --manifests " + good, 0, "elements = { 192.0.2.1 }", ""},
		{"iptables", "render --cluster-cidr 10.0.0.0/8 --node n1 --mode iptables --manifests " + good, 0, "-d 10.96.0.1/32", ""},
		{"mode of the configuration", "render --config " + config + " --node n1 --manifests " + good, 0, "*nat", ""},
		{"mode beside the configuration", "render --config " + config + " --mode nftables --node n1 --manifests " + good, 0, "table ip sluice", ""},
		{"name of the node as for the proxy", "render --cluster-cidr 10.0.0.0/8 --hostname-override N1 --manifests " + good, 0, "192.0.2.1", ""},
		{"one family", "render --cluster-cidr 10.0.0.0/8 --node n1 --family ipv6 --manifests " + good, 0, "table ip6 sluice", ""},
		{"no such Node", "render --cluster-cidr 10.0.0.0/8 --node n1 --manifests " + nodeless, 0, "table ip sluice", `no Node named "n1"`},
		{"a warning", "render --node n1 --manifests " + good, 0, "table ip sluice", "Warning: KubeProxyConfiguration: clusterCIDR"},
		{"a bad document", "render --cluster-cidr 10.0.0.0/8 --node n1 --manifests " + bad, 1, "192.0.2.1", "Problem: bad.yaml: document 1"},
		{"no directory", "render", 2, "", "set --manifests"},
		{"a directory that does not exist", "render --node n1 --cluster-cidr 10.0.0.0/8 --manifests /nonexistent", 2, "", "read the manifests"},
		{"no family", "render --family ipx --manifests " + good, 2, "", `"ipx" is not a family`},
		{"no mode", "render --mode ebpf --manifests " + good, 2, "", `"ebpf" is not available`},
		{"no difference", "diff --config " + config + " --node n1 --manifests " + good + " --against " + good, 0, "No difference.", ""},
		{"what only nftables mode refuses", "diff --config " + ours + " --node n1 --manifests " + cidr + " --against " + good, 1, "10.97.0.0/16", ""},
		{"what iptables mode leaves alone", "diff --config " + config + " --node n1 --manifests " + cidr + " --against " + good, 0, "No difference.", ""},
		{"a difference", "diff --config " + config + " --node n1 --manifests " + good + " --against " + empty, 1, "+ default/web: NodePort 0.0.0.0:30080/TCP", ""},
		{"a difference as JSON", "diff --json --config " + config + " --node n1 --manifests " + empty + " --against " + good, 1, `"removed": 2`, ""},
		{"a new problem in a difference", "diff --config " + config + " --node n1 --manifests " + bad + " --against " + good, 0,
			"No difference.\nNew problems, and what to do\n! bad.yaml: document 1", ""},
		{"an old problem in a difference", "diff --config " + config + " --node n1 --manifests " + bad + " --against " + bad, 0, "No difference.\nProblems as before: 1\n", ""},
		{"a difference with flags", "diff --cluster-cidr 10.0.0.0/8 --masquerade-all --mode iptables --node n1 --manifests " + good + " --against " + empty, 1,
			"masquerade: all connections", ""},
		{"nothing to compare", "diff", 2, "", "nothing to compare"},
		{"nothing to compare with", "diff --against " + good, 2, "", "nothing to compare"},
		{"a directory to compare with that does not exist", "diff --config " + config + " --node n1 --against /nonexistent --manifests " + good, 2, "", "read the manifests"},
		{"the proxy knows its node", "diff --node n1 --manifests " + good, 2, "", "only with --against: --node; the proxy that is asked knows"},
		{"the proxy knows its flags", "diff --mode iptables --cluster-cidr 10.0.0.0/8 --config " + config, 2, "", "only with --against: --mode, --cluster-cidr; the proxy that is asked knows"},
		{"no proxy", "diff --control-socket /nonexistent/s --manifests " + good, 2, "", "no proxy answers on"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := Main(strings.Fields(test.in), &stdout, &stderr); code != test.want {
				t.Errorf("exit code is %d, want %d", code, test.want)
			}
			if test.out == "" && stdout.Len() > 0 || !strings.Contains(stdout.String(), test.out) {
				t.Errorf("%q is not in standard output:\n%s", test.out, stdout.String())
			}
			if test.err == "" && stderr.Len() > 0 || !strings.Contains(stderr.String(), test.err) {
				t.Errorf("%q is not in standard error:\n%s", test.err, stderr.String())
			}
		})
	}
}
