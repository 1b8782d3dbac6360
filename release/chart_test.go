package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
	"k8s.io/client-go/rest"
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
	return renderIn(nil, chart, given, templates...)
}

// renderIn returns what Helm makes of templates in a cluster, nil for none.
func renderIn(cluster *rest.Config, chart string, given map[string]any, templates ...string) (string, error) {
	c, err := loader.Load(chart)
	if err != nil {
		return "", err
	}
	all, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "sluice", Namespace: namespace}, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	var files map[string]string
	if cluster == nil {
		files, err = engine.Render(c, all)
	} else {
		files, err = engine.RenderWithClient(c, all, cluster)
	}
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
	deployDir + "/kustomize/try/sluice.yaml":      {host + "serviceProxyName: sluice", objects},
	deployDir + "/kustomize/monitoring/monitoring.yaml": {
		host + "monitoring: {expose: true, podMonitor: true, rules: true, dashboard: true}", []string{"monitoring.yaml"}},
	"testdata/nonroot.yaml":   {host + "runAsNonRoot: true", objects},
	"testdata/nftables.yaml":  {host, objects},
	"testdata/userspace.yaml": {host + "mode: userspace", objects},
	"testdata/windows.yaml": {host + `
windows: {enabled: true, networkName: cbr0, enableDSR: true, nodeSelector: {node.kubernetes.io/windows-build: "10.0.20348"},
  extraConfig: {winkernel: {forwardHealthCheckVip: true}}, extraArgs: [--v=2]}
monitoring: {expose: true}
`, append(objects[:2:2], "windows.yaml")},
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
updateStrategy: {rollingUpdate: {maxUnavailable: 1}}
terminationGracePeriodSeconds: 45
podLabels: {team: network}
podAnnotations: {example.org/scan: "no"}
beside: true
monitoring: {expose: true}
`, objects},
}

// ofHelm are lines that only make sense to Helm. What kustomize uses does without them.
var ofHelm = regexp.MustCompile(`(?m)^ +(helm\.sh/chart|app\.kubernetes\.io/(instance|version|managed-by)|checksum/restart): .*\n`)

// There is one source for the objects, the chart: what kustomize uses is rendered from it.
func TestRenderedFilesAreThoseOfTheChart(t *testing.T) {
	for file, from := range rendered {
		t.Run(file, func(t *testing.T) {
			got, err := render(chartDir, from.values, from.templates...)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(file, deployDir+"/kustomize/") {
				got = ofHelm.ReplaceAllString(got, "")
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
		{"a short CIDR", host + "clusterCIDR: 10.0.0/8", "/clusterCIDR"},
		{"a CIDR that is too long", host + "clusterCIDR: 10.0.0.0/33", "/clusterCIDR"},
		{"an octet that is too large", host + "clusterCIDR: 10.0.0.0/8,10.256.0.0/16", "/clusterCIDR"},
		{"a bad range of node port addresses", host + "nodePortAddresses: [primary, 192.168/16]", "/nodePortAddresses/1"},
		{"a host with its port", "apiServer: {host: 10.0.0.1:6443}", "set apiServer.host to 10.0.0.1, and apiServer.port"},
		{"a name with its port", "apiServer: {host: api.cluster.example:6443}", "set apiServer.host to api.cluster.example, and apiServer.port"},
		{"an IPv6 address in brackets", "apiServer: {host: \"[2001:db8::1]:6443\"}", "has brackets"},
		{"the mode in extraConfig", host + "extraConfig: {mode: iptables}", "extraConfig.mode: other parts of the chart depend on it (set the value mode instead)"},
		{"the cluster CIDR in extraConfig", host + "extraConfig: {clusterCIDR: 10.0.0.0/8}", "set the value clusterCIDR"},
		{"node port addresses in extraConfig", host + "extraConfig: {nodePortAddresses: [all]}", "set the value nodePortAddresses"},
		{"the bind address in extraConfig", host + "extraConfig: {bindAddress: \"::\"}", "set the value bindAddress"},
		{"the metrics address in extraConfig", host + "extraConfig: {metricsBindAddress: 0.0.0.0}", "set the value monitoring.expose"},
		{"the health address in extraConfig", host + "extraConfig: {healthzBindAddress: 0.0.0.0:1}", "extraConfig.healthzBindAddress: the probes"},
		{"the name of the node in extraConfig", host + "extraConfig: {hostnameOverride: a}", "extraConfig.hostnameOverride: the name of the Node is a flag"},
		{"two pods with one host port", host + "monitoring: {expose: true}\nupdateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}", "updateStrategy.rollingUpdate.maxSurge"},
		{"an unknown strategy", host + "updateStrategy: {type: Recreate}", "/updateStrategy/type"},
		{"port as text", "apiServer: {host: a, port: \"6443\"}", "/apiServer/port"},
		{"iptables mode without root", host + "mode: iptables\nrunAsNonRoot: true", "runAsNonRoot"},
		{"a proxy beside another one in iptables mode", host + "serviceProxyName: trial\nmode: iptables", "set mode to nftables or userspace"},
		{"a name that is no label", host + "serviceProxyName: a/b", "/serviceProxyName"},
		{"all Services without a name", host + "allServices: true", "allServices: all Services are served without it"},
		{"Windows without a network", host + "windows: {enabled: true}", "windows.networkName"},
		{"Windows beside another proxy", host + "serviceProxyName: trial\nwindows: {enabled: true, networkName: cbr0}", "windows.enabled"},
		{"the mode of Windows", host + "windows: {enabled: true, networkName: cbr0, extraConfig: {mode: userspace}}", "windows.extraConfig.mode"},
		{"misspelt for Windows", host + "windows: {network: cbr0}", "network"},
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

// IPv6 has more colons than a port, and CIDRs of both families have a place.
func TestRightValuesAreAccepted(t *testing.T) {
	for _, values := range []string{
		`apiServer: {host: "2001:db8::1"}`, `apiServer: {host: "::1"}`, `apiServer: {host: localhost}`,
		host + `clusterCIDR: "10.244.0.0/16,fd00:10:244::/56"`, host + `clusterCIDR: "fd00::/8"`, host + `clusterCIDR: "0.0.0.0/0"`,
		host + `nodePortAddresses: [primary, localhost, 192.0.2.0/24, "::1/128"]`,
		host + `updateStrategy: {type: OnDelete}`,
		host + "serviceProxyName: Trial_2.a\nallServices: true",
		host + `extraConfig: {detectLocalMode: BridgeInterface, detectLocal: {bridgeInterface: cbr0}, oomScoreAdj: -900}`,
	} {
		if _, err := render(chartDir, values, objects...); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// The pods are replaced if the configuration changes in a way that a running proxy cannot
// follow, and only then.
func TestPodsAreReplacedIfTheyMustBe(t *testing.T) {
	pods := func(values string) string {
		t.Helper()
		text, err := render(chartDir, host+values, "daemonset.yaml")
		if err != nil {
			t.Fatalf("%s: %v", values, err)
		}
		return text
	}
	for _, tt := range []struct {
		name, before, after string
		replaced            bool
	}{
		{"mode", "", "mode: ipvs", true},
		{"mode back", "mode: userspace", "mode: nftables", true},
		{"a field in a section", "", "extraConfig: {ipvs: {strictARP: true}}", true},
		{"a gate", "", "extraConfig: {featureGates: {NativeHistograms: false}}", true},
		{"sysctls, which only the init container writes", "", "extraConfig: {conntrack: {maxPerCore: 0}}", true},
		{"the log's format", "extraConfig: {logging: {verbosity: 2}}", "extraConfig: {logging: {verbosity: 2, format: json}}", true},
		{"verbosity", "extraConfig: {logging: {format: json}}", "extraConfig: {logging: {verbosity: 2, format: json}}", false},
		{"cluster CIDR", "", "clusterCIDR: 10.0.0.0/8", false},
		{"node port addresses", "", "nodePortAddresses: [all]", false},
		{"periods and the scheduler", "mode: ipvs", "mode: ipvs\nextraConfig: {ipvs: {scheduler: lc, syncPeriod: 10s}}", false},
		{"another gate", "", "extraConfig: {featureGates: {AllowServiceExternalIPs: false}}", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := pods(tt.before) != pods(tt.after); got != tt.replaced {
				t.Errorf("the DaemonSet changes: %t", got)
			}
		})
	}
}

// api answers like an API server with one DaemonSet.
func api(t *testing.T, daemonSet string) *rest.Config {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body) // the client may be gone
		})
	}
	answer("/apis/apps/v1", `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1",
		"resources": [{"name": "daemonsets", "kind": "DaemonSet", "namespaced": true, "verbs": ["get"]}]}`)
	if daemonSet != "" {
		answer("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy", daemonSet)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// A chart beside a kube-proxy would harm the cluster: it says so before it changes anything.
func TestKubeProxyInPlaceIsNoticed(t *testing.T) {
	object := func(annotations string, nodes int) string {
		return fmt.Sprintf(`{"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "kube-proxy", "namespace": "kube-system", "annotations": {%s}}, "status": {"desiredNumberScheduled": %d}}`, annotations, nodes)
	}
	for _, tt := range []struct {
		name, inPlace string
		beside        bool
		refused       bool
	}{
		{"none", "", false, false},
		{"one that runs", object("", 3), false, true},
		{"one that runs, as is known", object("", 3), true, false},
		{"one that runs on no node", object("", 0), false, false},
		{"of this release", object(`"meta.helm.sh/release-name": "sluice"`, 3), false, false},
		{"of another release", object(`"meta.helm.sh/release-name": "other"`, 3), false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values := map[string]any{"apiServer": map[string]any{"host": "a"}, "beside": tt.beside}
			_, err := renderIn(api(t, tt.inPlace), chartDir, values, objects...)
			if refused := err != nil && strings.Contains(err.Error(), "there is a DaemonSet kube-proxy"); refused != tt.refused || err != nil && !refused {
				t.Errorf("%v", err)
			}
		})
	}
}

// Everything that belongs to a release can be found by its labels, and the pods by those of
// the first one, for good.
func TestLabels(t *testing.T) {
	text, err := render(chartDir, host+"podLabels: {team: network}", objects...)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"app.kubernetes.io/name": "sluice", "app.kubernetes.io/instance": "sluice",
		"app.kubernetes.io/version": "dev", "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "sluice-0.0.0"}
	for _, document := range strings.Split(text, "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Selector struct{ MatchLabels map[string]string }
				Template struct {
					Metadata struct{ Labels map[string]string }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, o.Metadata.Labels); diff != "" {
			t.Errorf("labels of the %s (-want +got):\n%s", o.Kind, diff)
		}
		if o.Kind != "DaemonSet" {
			continue
		}
		if diff := cmp.Diff(map[string]string{"app.kubernetes.io/name": "sluice"}, o.Spec.Selector.MatchLabels); diff != "" {
			t.Errorf("the selector, which cannot change (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"app.kubernetes.io/name": "sluice", "team": "network"}, o.Spec.Template.Metadata.Labels); diff != "" {
			t.Errorf("labels of the pods (-want +got):\n%s", diff)
		}
	}
}

// The notes promise nothing that has not happened yet.
func TestNotes(t *testing.T) {
	for values, want := range map[string]string{
		"mode: ipvs":                       "Sluice in ipvs mode is on its way to the Linux nodes of this cluster.\n",
		"nodeSelector: {a: b}":             "Sluice in nftables mode is on its way to the Linux nodes of this cluster that match nodeSelector.\n",
		"updateStrategy: {type: OnDelete}": "Sluice in nftables mode starts on a node when its pod there is deleted, and on new nodes.\n",
	} {
		if got, err := render(chartDir, host+values, "NOTES.txt"); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %v\n%s", values, err, got)
		}
	}
}

// The commands of the documentation set values that the chart has.
func TestDocumentedValuesAreAccepted(t *testing.T) {
	set := regexp.MustCompile(`--set ([a-zA-Z.-]+=(\$\(.*?\)|[^\s` + "`" + `]+))`)
	found := 0
	for _, file := range []string{"../docs/install.md", "../docs/userspace.md", chartDir + "/README.md", deployDir + "/monitoring/README.md"} {
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
	for _, name := range []string{"nftables", "iptables", "try", "monitoring", "example"} {
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
