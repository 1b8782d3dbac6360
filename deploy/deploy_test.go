// Package deploy holds the chart and the manifests that run the proxy in a cluster. There
// is no code in it, only tests that the manifests fit together, and fit the binary.
package deploy

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"sluice/internal/cli"
	"sluice/internal/config"
	"sluice/internal/config/configtest"
)

const namespace = "kube-system"

// rendered are the files made from the chart, with the mode that each sets. That they are
// what the chart gives is tested where Helm is.
var rendered = map[string]string{
	"kustomize/nftables/sluice.yaml":      "nftables",
	"kustomize/iptables/sluice.yaml":      "iptables",
	"kustomize/try/sluice.yaml":           "nftables",
	"../release/testdata/everything.yaml": "ipvs",
}

// eachRendering runs a test for each of them.
func eachRendering(t *testing.T, f func(t *testing.T, m *manifests, mode string)) {
	for file, mode := range rendered {
		t.Run(file, func(t *testing.T) { f(t, read(t, file), mode) })
	}
}

func TestConfigurationHasNoWarnings(t *testing.T) {
	eachRendering(t, func(t *testing.T, m *manifests, mode string) {
		for _, c := range containers(m.daemonSet) {
			flags := parse(t, c.Command)
			file := m.mounted(t, c, flags.ConfigFile)
			if got, want := flags.InitOnly, c.Name == "init"; got != want {
				t.Errorf("%s: --init-only is %t, want %t", c.Name, got, want)
			}
			s := settings(t, flags, file)
			for _, w := range s.Warnings {
				t.Errorf("%s: warning: %s", c.Name, w)
			}
			if s.Mode.Name != mode {
				t.Errorf("%s: mode %q", c.Name, s.Mode.Name)
			}
		}
	})
}

// The proxy asks the API server itself, with the pod's own token. The address that
// Kubernetes gives to pods is that of a Service, which works only once a proxy does.
func TestPodsDoNotReachTheAPIServerByAService(t *testing.T) {
	eachRendering(t, func(t *testing.T, m *manifests, _ string) {
		for _, c := range containers(m.daemonSet) {
			flags := parse(t, c.Command)
			s := settings(t, flags, m.mounted(t, c, flags.ConfigFile))
			if got := s.Client.Connection.Kubeconfig; got != "" {
				t.Errorf("%s: kubeconfig %q", c.Name, got)
			}
			for _, name := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
				if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name && e.Value != "" }) {
					t.Errorf("%s: %s is not set", c.Name, name)
				}
			}
		}
	})
}

func TestProxyHasFewCapabilities(t *testing.T) {
	eachRendering(t, func(t *testing.T, m *manifests, mode string) {
		capabilities := []corev1.Capability{"NET_ADMIN"}
		if mode == "iptables" {
			capabilities = append(capabilities, "NET_RAW")
		}
		no, yes, root := false, true, int64(0)
		want := &corev1.SecurityContext{
			Privileged:               &no,
			AllowPrivilegeEscalation: &no,
			ReadOnlyRootFilesystem:   &yes,
			RunAsUser:                &root,
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		if diff := cmp.Diff(want, m.daemonSet.Spec.Template.Spec.Containers[0].SecurityContext); diff != "" {
			t.Errorf("security context (-want +got):\n%s", diff)
		}
	})
}

func TestProbesMatchTheServers(t *testing.T) {
	eachRendering(t, func(t *testing.T, m *manifests, _ string) {
		c := m.daemonSet.Spec.Template.Spec.Containers[0]
		flags := parse(t, c.Command)
		s := settings(t, flags, m.mounted(t, c, flags.ConfigFile))
		for path, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			if probe == nil || probe.HTTPGet == nil {
				t.Fatal("there is a probe missing")
			}
			if got, want := probe.HTTPGet.Port.IntValue(), int(s.Serving.Health.Port()); got != want {
				t.Errorf("port %d, want %d", got, want)
			}
			if got := probe.HTTPGet.Path; got != path {
				t.Errorf("path %s, want %s", got, path)
			}
		}
		for _, p := range c.Ports {
			if p.Name == "metrics" && int(p.ContainerPort) != int(s.Serving.Metrics.Port()) {
				t.Errorf("metrics are expected on port %d, and served on %v", p.ContainerPort, s.Serving.Metrics)
			}
		}
	})
}

// The chart replaces pods when a field changes that a running proxy cannot change: it must
// know all of them. Sysctls are those of the init container, and gates come in groups, too.
func TestChartKnowsWhatNeedsARestart(t *testing.T) {
	text, err := os.ReadFile("chart/files/restart.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"conntrack", "featureGates.AllAlpha", "featureGates.AllBeta"}
	for _, row := range configtest.Rows {
		if row.Restart && row.Field != "" {
			want = append(want, row.Field)
		}
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			got = append(got, line)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +chart):\n%s", diff)
	}
}

func TestPodsHavePermissions(t *testing.T) {
	eachRendering(t, testPermissions)
}

func testPermissions(t *testing.T, m *manifests, _ string) {
	spec := m.daemonSet.Spec
	for name, value := range spec.Selector.MatchLabels {
		if got := spec.Template.Labels[name]; got != value {
			t.Errorf("the pods have %s: %q, and the selector asks for %q", name, got, value)
		}
	}
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: m.account.Name, Namespace: namespace}}
	if got := spec.Template.Spec.ServiceAccountName; got != m.account.Name {
		t.Errorf("the pods have service account %q, want %q", got, m.account.Name)
	}
	unbound := map[string]bool{"system:node-proxier": true}
	for _, role := range m.roles {
		unbound[role.Name] = true
	}
	for _, b := range m.bindings {
		if diff := cmp.Diff(want, b.Subjects); diff != "" {
			t.Errorf("subjects of %s (-want +got):\n%s", b.Name, diff)
		}
		if !unbound[b.RoleRef.Name] {
			t.Errorf("%s binds %q, which is not there or is bound twice", b.Name, b.RoleRef.Name)
		}
		delete(unbound, b.RoleRef.Name)
	}
	if len(unbound) > 0 {
		t.Errorf("not bound: %v", unbound)
	}
}

// stage is a stage of the Dockerfile.
type stage struct {
	base, name string
	binary     string   // copied from another stage
	runs       []string // commands
}

func stages(t *testing.T) (out []*stage) {
	t.Helper()
	data, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		switch {
		case len(words) < 2:
		case words[0] == "FROM":
			out = append(out, &stage{base: words[1], name: words[len(words)-1]})
		case words[0] == "RUN":
			last := out[len(out)-1]
			last.runs = append(last.runs, line)
		case words[0] == "COPY" && strings.HasPrefix(words[1], "--from="):
			out[len(out)-1].binary = words[3]
		case words[0] == "COPY":
			for _, source := range words[1 : len(words)-1] {
				if _, err := os.Stat(filepath.Join("..", source)); err != nil {
					t.Errorf("the image is built from what is not there: %v", err)
				}
			}
		}
	}
	return out
}

func TestImageHasTheBinaryInPlace(t *testing.T) {
	images := stages(t)
	image := images[len(images)-1]
	for _, c := range containers(read(t, "kustomize/iptables/sluice.yaml").daemonSet) {
		if c.Command[0] != image.binary {
			t.Errorf("container %s runs %s, image %s has %q", c.Name, c.Command[0], image.name, image.binary)
		}
	}
	// An image that takes the place of upstream's must be able to do what an empty mode
	// means there.
	if !slices.ContainsFunc(image.runs, func(run string) bool { return strings.Contains(run, "install") && strings.Contains(run, " iptables ") }) {
		t.Errorf("the image does not install iptables: %+v", image)
	}
}

// TestKubeadmConfigIsAccepted is about replacing nothing but the image of the
// DaemonSet that kubeadm makes.
func TestKubeadmConfigIsAccepted(t *testing.T) {
	flags := parse(t, []string{"/usr/local/bin/kube-proxy",
		"--config=/var/lib/kube-proxy/config.conf", "--hostname-override=$(NODE_NAME)"})
	data, err := os.ReadFile(filepath.Join("testdata", "kubeadm-config.conf"))
	if err != nil {
		t.Fatal(err)
	}
	flags.EmptyMode = "iptables" // as where iptables is installed
	s := settings(t, flags, string(data))
	for _, w := range s.Warnings {
		t.Errorf("warning: %s", w)
	}
	if s.Mode.Name != "iptables" || !s.Plan.NodePortAddresses.All {
		t.Errorf("mode %q, node ports on %+v", s.Mode.Name, s.Plan.NodePortAddresses)
	}
	if got, want := s.Client.Connection.Kubeconfig, "/var/lib/kube-proxy/kubeconfig.conf"; got != want {
		t.Errorf("kubeconfig %q, want %q", got, want)
	}
}

// parse reads a container's command line, which may have known flags only.
func parse(t *testing.T, line []string) *config.Flags {
	t.Helper()
	var out, complaints strings.Builder
	if code := cli.Main(append(slices.Clone(line[1:]), "--version"), &out, &complaints); code != 0 {
		t.Fatalf("%q: %s", line, complaints.String())
	}
	set := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	flags := config.AddFlags(set)
	flags.AddOwn(set)
	// Those of the command itself, which have no part in the configuration.
	set.String("control-socket", "", "")
	set.Bool("reset-removed-endpoints", false, "")
	if err := set.Parse(line[1:]); err != nil {
		t.Fatal(err)
	}
	return flags
}

// settings is what flags mean beside a configuration file with this content.
func settings(t *testing.T, flags *config.Flags, file string) *config.Settings {
	t.Helper()
	flags.ConfigFile = filepath.Join(t.TempDir(), path.Base(flags.ConfigFile))
	if err := os.WriteFile(flags.ConfigFile, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := flags.Settings()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func containers(d *appsv1.DaemonSet) []corev1.Container {
	return slices.Concat(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers)
}
