package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"sluice/test/cluster/apiserver"
)

// execServer serves the part of a kubelet that runs commands in pods. The API server proxies
// kubectl exec to it, and it runs them where the proxy of the node runs.
type execServer struct {
	site   *site
	node   string
	socket string // of the proxy
}

func (k *execServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // exec, namespace, pod, container
	options, err := remotecommand.NewOptions(r)
	if err != nil || len(parts) != 4 || parts[0] != "exec" {
		http.Error(w, fmt.Sprintf("%s: %v", r.URL, err), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, k, parts[2], "", parts[3], r.URL.Query()["command"], options, time.Minute, time.Minute, remotecommand.SupportedStreamingProtocols)
}

// ExecInContainer is for remotecommand.Executor.
func (k *execServer) ExecInContainer(ctx context.Context, _, _, _ string, args []string, in io.Reader, out, errs io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	// In a pod the socket is at its default path.
	args = append([]string{args[1], "--control-socket=" + k.socket}, args[2:]...)
	path, err := binary()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	if err := k.site.host(k.node).Do(cmd.Start); err != nil {
		return err
	}
	err = cmd.Wait()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return utilexec.CodeExitError{Err: err, Code: ended.ExitCode()}
	}
	return err
}

// serveKubelet serves what the API server asks the kubelet of a node.
func (s *site) serveKubelet(node string, handler http.Handler) {
	s.Helper()
	server := httptest.NewTLSServer(handler)
	s.Cleanup(server.Close)
	object, err := s.client.CoreV1().Nodes().Get(s.Context(), node, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	// The API server prefers the host name, and the other addresses are in the lab.
	object.Status.Addresses = append(object.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "127.0.0.1"})
	object.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(server.Listener.Addr().(*net.TCPAddr).Port)
	if _, err := s.client.CoreV1().Nodes().UpdateStatus(s.Context(), object, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// startKubelet serves the kubelet of a node, and registers the pod of its proxy.
func (s *site) startKubelet(node, socket string) {
	s.Helper()
	s.serveKubelet(node, &execServer{site: s, node: node, socket: socket})
	no := false
	pods := s.client.CoreV1().Pods("kube-system")
	pod, err := pods.Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "sluice-" + node, Labels: map[string]string{"app.kubernetes.io/name": "sluice"}},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "sluice", AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "kube-proxy", Image: "sluice:dev", Command: []string{"/usr/local/bin/kube-proxy"}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	if _, err := pods.UpdateStatus(s.Context(), pod, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// TestPluginAsksAllNodes asks two proxies through the API server.
func TestPluginAsksAllNodes(t *testing.T) {
	s := startWithoutProxy(t)
	s.dig("node2", s.server.Addr())
	if _, err := s.client.CoreV1().ServiceAccounts("kube-system").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sluice-plugin-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, node := range []string{"node1", "node2"} {
		s.startProxyOn(node, filepath.Join(dir, node, "s"))
		s.startKubelet(node, filepath.Join(dir, node, "s"))
	}
	p := s.plugin()
	p.says(0, []string{"status"}, "node1  serving  nftables", "node2  serving  nftables")
	s.create("web", "pod1")
	web, err := s.client.CoreV1().Services(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	local := corev1.ServiceInternalTrafficPolicyLocal
	web.Spec.InternalTrafficPolicy = &local
	if _, err := s.client.CoreV1().Services(namespace).Update(t.Context(), web, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	name := namespace + "/web"
	p.says(0, []string{"status", "--node", "node2"}, "on node node2: nftables mode", "serving")
	p.says(1, []string{"explain", name + ":80"}, "1 node (1 of 2): node1\n  Service "+name, "WORKS: ",
		"1 node (1 of 2): node2\n  Service "+name, "REFUSED (dropped): the Service has endpoints, but none on this node", "what to do ")
	p.says(0, []string{"explain", "--node", "node1", "web." + namespace + ".svc:80"}, "WORKS: reaches the only endpoint", "on this node")
	p.says(1, []string{"explain", "--node", "node2", name + ":80"}, "REFUSED (dropped): ")
	p.says(2, []string{"explain", "--node", "node3", name}, "no pod of the proxy on node node3")
	p.says(2, []string{"explain", name + ":"}, "NO ANSWER: ", "has a colon and no port")
	p.says(0, []string{"services", "--in", namespace}, "web ", "FAILING ON")
	p.says(0, []string{"events", name}, "node1 ", "node2 ", "Service added")

	file := filepath.Join(t.TempDir(), "new.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Service\nmetadata: {name: new, namespace: default}\nspec: {clusterIP: 10.96.7.7, ports: [{port: 80}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.says(1, []string{"diff", "-f", file}, "2 nodes: node1, node2\n  Frontends: 1 added, 0 removed, 0 changed\n", "default/new")

	var out struct {
		Nodes []struct {
			Node   string
			Answer struct{ Healthy bool }
		}
	}
	if text := p.says(0, []string{"status", "-o", "yaml"}); !strings.Contains(text, "\n  node: node2\n") {
		t.Errorf("status as YAML is\n%s", text)
	}
	text := p.says(0, []string{"status", "--json"})
	if err := json.Unmarshal([]byte(text), &out); err != nil || len(out.Nodes) != 2 || out.Nodes[1].Node != "node2" || !out.Nodes[1].Answer.Healthy {
		t.Errorf("%v\n%s", err, text)
	}
}

// startProxyOn starts a proxy on a node. It ends with the test.
func (s *site) startProxyOn(node, socket string) {
	s.Helper()
	path, err := binary()
	if err != nil {
		s.Fatal(err)
	}
	kubeconfig, err := s.server.Kubeconfig(apiserver.KubeProxy)
	if err != nil {
		s.Fatal(err)
	}
	s.runOn(node, path, "--kubeconfig", kubeconfig, "--hostname-override", node, "--proxy-mode", "nftables", "--control-socket", socket)
}

// plugin runs kubectl-sluice with the rights of an administrator.
type plugin struct {
	*site
	path, kubeconfig string
}

func (s *site) plugin() *plugin {
	s.Helper()
	kubeconfig, err := s.server.Kubeconfig(apiserver.Admin)
	if err != nil {
		s.Fatal(err)
	}
	path := filepath.Join(s.TempDir(), "kubectl-sluice")
	build := exec.Command("go", "build", "-C", "../..", "-buildvcs=false", "-o", path, "./cmd/kubectl-sluice")
	if output, err := build.CombinedOutput(); err != nil {
		s.Fatalf("build kubectl-sluice: %v\n%s", err, output)
	}
	return &plugin{s, path, kubeconfig}
}

// says runs the plugin until it exits with a code and says what is wanted.
func (p *plugin) says(code int, args []string, want ...string) (text string) {
	p.Helper()
	p.eventually(fmt.Sprint(args), func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, p.path, append(args, "--kubeconfig", p.kubeconfig)...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if text = out.String(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
			return fmt.Errorf("%v, want exit code %d:\n%s%s", err, code, text, errs.String())
		}
		for _, w := range want {
			if !strings.Contains(text+errs.String(), w) {
				return fmt.Errorf("%q is not in\n%s%s", w, text, errs.String())
			}
		}
		return nil
	})
	return text
}
