// Package deploy holds the manifests that run the proxy in a cluster. There is no
// code in it, only tests that the manifests fit together, and fit the binary.
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
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"sluice/internal/config"
)

const namespace = "kube-system"

func TestKustomizationNamesEveryManifest(t *testing.T) {
	data, err := os.ReadFile("kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Resources  []string `json:"resources"`
		Images     []struct {
			Name    string `json:"name"`
			NewName string `json:"newName"`
			NewTag  string `json:"newTag"`
		} `json:"images"`
	}
	if err := yaml.UnmarshalStrict(data, &got); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got.Resources)
	if diff := cmp.Diff(manifestFiles(t), got.Resources); diff != "" {
		t.Errorf("resources (-files +kustomization):\n%s", diff)
	}
	for _, c := range containers(read(t).daemonSet) {
		name, _, _ := strings.Cut(c.Image, ":")
		if len(got.Images) != 1 || got.Images[0].Name != name {
			t.Errorf("image %s of container %s is not the one that can be set: %+v", c.Image, c.Name, got.Images)
		}
	}
}

func TestConfigurationHasNoWarnings(t *testing.T) {
	m := read(t)
	for _, c := range containers(m.daemonSet) {
		t.Run(c.Name, func(t *testing.T) {
			flags := parse(t, c.Command)
			file := m.mounted(t, c, flags.ConfigFile)
			if got, want := flags.InitOnly, c.Name == "init"; got != want {
				t.Errorf("--init-only is %t, want %t", got, want)
			}
			s := settings(t, flags, file)
			for _, w := range s.Warnings {
				t.Errorf("warning: %s", w)
			}
			if s.Mode.Name != "nftables" {
				t.Errorf("mode %q", s.Mode.Name)
			}
			m.mounted(t, c, s.Client.Connection.Kubeconfig)
		})
	}
}

func TestKubeconfigUsesThePodToken(t *testing.T) {
	c, err := clientcmd.Load([]byte(read(t).configMap.Data["kubeconfig.conf"]))
	if err != nil {
		t.Fatal(err)
	}
	context := c.Contexts[c.CurrentContext]
	if context == nil {
		t.Fatalf("there is no context %q", c.CurrentContext)
	}
	cluster, user := c.Clusters[context.Cluster], c.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil {
		t.Fatalf("there is no cluster %q or no user %q", context.Cluster, context.AuthInfo)
	}
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	got := []string{user.TokenFile, cluster.CertificateAuthority}
	if diff := cmp.Diff([]string{account + "token", account + "ca.crt"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(cluster.Server, "https://") {
		t.Errorf("server %q", cluster.Server)
	}
}

func TestProxyHasOnlyNetAdmin(t *testing.T) {
	pod := read(t).daemonSet.Spec.Template.Spec
	no, yes, root := false, true, int64(0)
	want := &corev1.SecurityContext{
		Privileged:               &no,
		AllowPrivilegeEscalation: &no,
		ReadOnlyRootFilesystem:   &yes,
		RunAsUser:                &root,
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if diff := cmp.Diff(want, pod.Containers[0].SecurityContext); diff != "" {
		t.Errorf("security context (-want +got):\n%s", diff)
	}
}

func TestProbesMatchTheServers(t *testing.T) {
	m := read(t)
	c := m.daemonSet.Spec.Template.Spec.Containers[0]
	flags := parse(t, c.Command)
	s := settings(t, flags, m.mounted(t, c, flags.ConfigFile))
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			t.Fatal("there is a probe missing")
		}
		if got, want := probe.HTTPGet.Port.IntValue(), int(s.Serving.Health.Port()); got != want {
			t.Errorf("port %d, want %d", got, want)
		}
		if got := probe.HTTPGet.Path; got != "/livez" {
			t.Errorf("path %s", got)
		}
	}
}

func TestPodsHavePermissions(t *testing.T) {
	m := read(t)
	spec := m.daemonSet.Spec
	if diff := cmp.Diff(spec.Selector.MatchLabels, spec.Template.Labels); diff != "" {
		t.Errorf("labels (-selector +template):\n%s", diff)
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

func TestImagesHaveTheBinaryInPlace(t *testing.T) {
	images := stages(t)[1:] // the first one builds
	for _, image := range images {
		for _, c := range containers(read(t).daemonSet) {
			if c.Command[0] != image.binary {
				t.Errorf("container %s runs %s, image %s has %q", c.Name, c.Command[0], image.name, image.binary)
			}
		}
	}
}

// An image that takes the place of upstream's must be able to do what an empty mode
// means there. The last stage is the one that is built when none is named.
func TestOnlyDefaultImageHasIPTables(t *testing.T) {
	images := stages(t)
	last := images[len(images)-1]
	if !slices.ContainsFunc(last.runs, func(run string) bool { return strings.Contains(run, "install") && strings.Contains(run, " iptables ") }) {
		t.Errorf("the default image does not install iptables: %+v", last)
	}
	minimal := slices.IndexFunc(images, func(s *stage) bool { return s.name == "minimal" })
	if minimal < 0 || images[minimal].base != "scratch" || len(images[minimal].runs) > 0 {
		t.Errorf("there is no image minimal from scratch: %+v", images)
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
func parse(t *testing.T, command []string) *config.Flags {
	t.Helper()
	set := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	flags := config.AddFlags(set)
	if err := set.Parse(command[1:]); err != nil {
		t.Fatal(err)
	}
	if set.NArg() > 0 {
		t.Fatalf("arguments that are no flags: %q", set.Args())
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
