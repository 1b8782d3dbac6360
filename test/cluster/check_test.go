package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"sluice/test/cluster/kubelet"
)

const (
	migration     = "../../docs/migrate.md"
	kubeadmConfig = "../../deploy/testdata/kubeadm-config.conf"
)

// kubeadmKubeconfig is that of kubeadm's ConfigMap, for an API server at an address.
const kubeadmKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: default, cluster: {server: "https://%v", certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt}}]
users: [{name: default, user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}}]
contexts: [{name: default, context: {cluster: default, user: default, namespace: default}}]
current-context: default
`

// checking is a site as kubeadm leaves it, on a node of which a kubelet runs the pods of checks.
type checking struct {
	*site
	node    string
	machine *kubelet.Machine
	image   *kubelet.Image

	mu   sync.Mutex
	logs map[string][]byte // by name of the pod
}

func startChecking(t *testing.T, image string) *checking {
	t.Helper()
	c := &checking{site: startWithoutProxy(t), node: "node1", logs: map[string][]byte{}}
	c.dig(controlPlane, netip.AddrPortFrom(c.host(controlPlane).Addrs[0], c.server.Addr().Port()))
	c.createRootCertificates()
	config, err := os.ReadFile(kubeadmConfig)
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "kube-proxy", Namespace: metav1.NamespaceSystem}
	_, aerr := c.client.CoreV1().ServiceAccounts(meta.Namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	_, merr := c.client.CoreV1().ConfigMaps(meta.Namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta,
		Data: map[string]string{configKey: string(config), "kubeconfig.conf": fmt.Sprintf(kubeadmKubeconfig, c.server.Addr())}}, metav1.CreateOptions{})
	_, berr := c.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:node-proxier"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: meta.Namespace}},
	}, metav1.CreateOptions{})
	if err := errors.Join(aerr, merr, berr); err != nil {
		t.Fatal(err)
	}
	c.image = c.site.image(image)
	if c.machine, err = kubelet.Boot(c.host(c.node)); err != nil {
		t.Fatal(err)
	}
	c.closeLater(c.machine.Shutdown)
	c.serveKubelet(c.node, c)
	return c
}

// ServeHTTP serves the logs of pods that have ended.
func (c *checking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // containerLogs, namespace, pod, container
	if len(parts) != 4 || parts[0] != "containerLogs" {
		http.NotFound(w, r)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = w.Write(c.logs[parts[2]]) // the client may be gone
}

// runPod runs the container of a pod until it exits.
func (c *checking) runPod(ctx context.Context, object *corev1.Pod) (log string, code int, err error) {
	pod, err := c.machine.Pod(ctx, kubelet.Options{Client: c.client, Pod: object, Image: c.image})
	if err != nil {
		return "", 0, err
	}
	container, err := pod.Container(&object.Spec.Containers[0])
	if err != nil {
		return "", 0, err
	}
	command := container.Command()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := c.host(c.node).Do(cmd.Start); err != nil {
		return "", 0, err
	}
	err = cmd.Wait()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		err = nil
	}
	return out.String(), cmd.ProcessState.ExitCode(), err
}

// follow runs the pods that the plugin creates, until ctx ends.
func (c *checking) follow(ctx context.Context) {
	pods := c.client.CoreV1().Pods(metav1.NamespaceSystem)
	for done := map[string]bool{}; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=sluice-check"})
		if err != nil {
			continue
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if done[pod.Name] {
				continue
			}
			done[pod.Name] = true
			log, code, err := c.runPod(ctx, pod)
			if err != nil {
				log, code = err.Error(), 128
			}
			c.mu.Lock()
			c.logs[pod.Name] = []byte(log)
			c.mu.Unlock()
			pod.Status.Phase = corev1.PodSucceeded
			if code != 0 {
				pod.Status.Phase = corev1.PodFailed
			}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name,
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code)}}}}
			_, _ = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}) // the plugin may have deleted it
		}
	}
}

// documentedPod is the pod of docs/migrate.md, with what a reader fills in.
func documentedPod(t *testing.T, node, version string) *corev1.Pod {
	t.Helper()
	text, err := os.ReadFile(migration)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```yaml\napiVersion: v1\nkind: Pod\n")
	manifest, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("%s has no pod", migration)
	}
	manifest = strings.NewReplacer("nodeName: NODE ", "nodeName: "+node+" ", "VERSION", version).Replace(manifest)
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte("apiVersion: v1\nkind: Pod\n"+manifest), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// TestNodeIsCheckedInAPod checks a node of kubeadm's before it is switched: with the plugin, which
// creates the pod, reads its log and deletes it, and with the pod that migrate.md has to copy.
func TestNodeIsCheckedInAPod(t *testing.T) {
	documented := documentedPod(t, "node1", "dev")
	c := startChecking(t, documented.Spec.Containers[0].Image)
	want := []string{"Switching node node1 to Sluice in nftables mode, with 1 Service\nREADY", "FINE  nftables mode: it works", "FINE  Services: all of them would be served\n"}

	pods := c.client.CoreV1().Pods(metav1.NamespaceSystem)
	object, err := pods.Create(t.Context(), documented, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	log, code, err := c.runPod(t.Context(), object)
	if err != nil || code != 0 {
		t.Errorf("the documented pod ends with %d, %v:\n%s", code, err, log)
	}
	for _, text := range want {
		if !strings.Contains(log, text) {
			t.Errorf("%q is not in\n%s", text, log)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { c.follow(ctx) })
	defer following.Wait()
	defer cancel()
	p := c.plugin()
	image := "--image=" + documented.Spec.Containers[0].Image
	p.says(0, []string{"check", "--node", "node1", image}, want...)
	file := filepath.Join(t.TempDir(), "new.conf")
	if err := os.WriteFile(file, []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nclusterCIDR: 10.244.0.0/99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.says(2, []string{"check", "--node", "node1", image, "--config", file}, "clusterCIDR")
	p.says(2, []string{"check", "--node", "node3", image}, `nodes "node3" not found`)
	left, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=sluice-check"})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("%d pods are left, %v", len(left.Items), err)
	}
}
