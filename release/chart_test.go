package main

import (
	"bytes"
	"flag"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	deployDir = "../deploy"
	chartDir  = deployDir + "/chart"
	namespace = "kube-system"
)

var update = flag.Bool("update", false, "write the files that are rendered from the chart")

// objects are the templates that every cluster gets, in the order to create them.
var objects = []string{"serviceaccount.yaml", "rbac.yaml", "configmap.yaml", "daemonset.yaml"}

// render returns what Helm makes of templates.
func render(chart string, values string, templates ...string) (string, error) {
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		return "", err
	}
	return renderValues(chart, given, templates...)
}

func renderValues(chart string, given map[string]any, templates ...string) (string, error) {
	c, err := loader.Load(chart)
	if err != nil {
		return "", err
	}
	all, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "sluice", Namespace: namespace}, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, name := range templates {
		parts = append(parts, strings.TrimSpace(files[path.Join(c.Name(), "templates", name)])+"\n")
	}
	return strings.Join(parts, "---\n"), nil
}

const host = "apiServer: {host: api.cluster.example}\n"

// rendered are the files made from the chart. Those under testdata have values that no
// kustomization has; other tests give them to an API server.
var rendered = map[string]struct {
	values    string
	templates []string
}{
	deployDir + "/kustomize/nftables/sluice.yaml": {host, objects},
	deployDir + "/kustomize/iptables/sluice.yaml": {host + "mode: iptables", objects},
	deployDir + "/kustomize/monitoring/monitoring.yaml": {
		host + "monitoring: {expose: true, podMonitor: true, rules: true, dashboard: true}", []string{"monitoring.yaml"}},
	"testdata/nonroot.yaml": {host + "runAsNonRoot: true", objects},
	"testdata/everything.yaml": {`
apiServer: {host: "2001:db8::1", port: 443}
mode: ipvs
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
nodePortAddresses: [all]
bindAddress: "::"
controlSocket: false
extraConfig: {ipvs: {scheduler: wlc}, conntrack: {maxPerCore: 0}}
extraArgs: [--reset-removed-endpoints]
image: {repository: localhost/other, tag: v9, pullPolicy: Always, pullSecrets: [one, two]}
resources: {limits: {memory: 1Gi}}
nodeSelector: {kubernetes.io/arch: amd64}
maxUnavailable: 1
monitoring: {expose: true}
`, objects},
}

// There is one source for the objects, the chart: what kustomize uses is rendered from it.
func TestRenderedFilesAreThoseOfTheChart(t *testing.T) {
	for file, from := range rendered {
		t.Run(file, func(t *testing.T) {
			got, err := render(chartDir, from.values, from.templates...)
			if err != nil {
				t.Fatal(err)
			}
			got = "# Rendered from the Helm chart: cd release && go test . -update\n" + got
			if *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			have, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(have), got); diff != "" {
				t.Errorf("go test . -update would change it (-file +chart):\n%s", diff)
			}
		})
	}
}

func TestChartHasNothingToLint(t *testing.T) {
	values := map[string]any{"apiServer": map[string]any{"host": "192.0.2.1"}}
	for _, m := range lint.RunAll(chartDir, values, namespace).Messages {
		if m.Severity > support.InfoSev || !strings.Contains(m.Error(), "icon") {
			t.Error(m)
		}
	}
}

// A mistake in the values is named before anything reaches a cluster.
func TestWrongValuesAreRefused(t *testing.T) {
	tests := []struct{ name, values, want string }{
		{"no API server", "", "apiServer.host"},
		{"an address with https", "apiServer: {host: https://192.0.2.1}", "/apiServer/host"},
		{"unknown mode", host + "mode: ebpf", "/mode"},
		{"misspelt", host + "clusterCidr: 10.0.0.0/8", "clusterCidr"},
		{"no CIDR", host + "clusterCIDR: 10.0.0.0", "/clusterCIDR"},
		{"port as text", "apiServer: {host: a, port: \"6443\"}", "/apiServer/port"},
		{"iptables mode without root", host + "mode: iptables\nrunAsNonRoot: true", "runAsNonRoot"},
		{"monitor of what is not exposed", host + "monitoring: {podMonitor: true}", "monitoring.expose"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := render(chartDir, test.values, slices.Concat(objects, []string{"monitoring.yaml"})...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an error about %s", err, test.want)
			}
		})
	}
}

// The commands of the documentation set values that the chart has.
func TestDocumentedValuesAreAccepted(t *testing.T) {
	set := regexp.MustCompile(`--set ([a-zA-Z.-]+=(\$\(.*?\)|[^\s` + "`" + `]+))`)
	found := 0
	for _, file := range []string{"../docs/install.md", deployDir + "/monitoring/README.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// A command may go on in the next line.
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
			var all []string
			for _, m := range set.FindAllStringSubmatch(line, -1) {
				all = append(all, m[1])
			}
			if all == nil {
				continue
			}
			found++
			values, err := strvals.Parse(strings.Join(append([]string{"apiServer.host=a"}, all...), ","))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if _, err := renderValues(chartDir, values, objects...); err != nil {
				t.Errorf("%s: %s: %v", file, strings.TrimSpace(line), err)
			}
		}
	}
	if found < 8 {
		t.Errorf("there are only %d commands with values", found)
	}
}

// object is what is looked at of an object.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
}

// kubeadm makes a ConfigMap, a DaemonSet and a ServiceAccount kube-proxy in kube-system, and
// bindings and roles that begin with kubeadm or system. To overwrite them loses the
// configuration of a cluster that runs.
func TestNothingOfKubeadmIsOverwritten(t *testing.T) {
	for file, from := range rendered {
		text, err := render(chartDir, from.values, from.templates...)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(text, "\n---\n") {
			var o object
			if err := yaml.Unmarshal([]byte(document), &o); err != nil {
				t.Fatal(err)
			}
			if o.Metadata.Name != "sluice" && !strings.HasPrefix(o.Metadata.Name, "sluice:") && o.Metadata.Name != "sluice-dashboard" {
				t.Errorf("%s has a %s %s", file, o.Kind, o.Metadata.Name)
			}
		}
	}
}

// TestKustomizationsBuild also shows that the example sets what it promises to.
func TestKustomizationsBuild(t *testing.T) {
	for _, name := range []string{"nftables", "iptables", "monitoring", "example"} {
		t.Run(name, func(t *testing.T) {
			objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
				Run(filesys.MakeFsOnDisk(), filepath.Join(deployDir, "kustomize", name))
			if err != nil {
				t.Fatal(err)
			}
			text, err := objects.AsYaml()
			if err != nil {
				t.Fatal(err)
			}
			if name != "example" {
				return
			}
			if got := bytes.Count(text, []byte("value: 192.0.2.1\n")); got != 2 {
				t.Errorf("the API server is set %d times, want once in each container:\n%s", got, text)
			}
			if bytes.Contains(text, []byte("api.cluster.example")) {
				t.Errorf("the API server is not set everywhere:\n%s", text)
			}
		})
	}
}
