package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"sluice/internal/cli"
)

// checked is an API server with a node, a configuration and a pod of a check, which ends as
// it is told to.
type checked struct {
	*testing.T
	server *httptest.Server
	status corev1.PodStatus
	log    string

	mu      sync.Mutex
	created *corev1.Pod
	asked   chan struct{} // a value for each time that the pod was looked at
	deleted bool
}

func newChecked(t *testing.T, status corev1.PodStatus, log string) *checked {
	t.Helper()
	c := &checked{T: t, status: status, log: log, asked: make(chan struct{}, 1000)}
	mux := http.NewServeMux()
	static := map[string]string{
		"GET /api/v1/nodes/n1": `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}}`,
		"GET /api/v1/namespaces/kube-system/configmaps/kube-proxy":        `{"kind": "ConfigMap", "apiVersion": "v1", "data": {"config.conf": "mode: ipvs"}}`,
		"GET /api/v1/namespaces/kube-system/serviceaccounts/kube-proxy":   `{"kind": "ServiceAccount", "apiVersion": "v1"}`,
		"GET /api/v1/namespaces/kube-system/pods":                         `{"kind": "PodList", "apiVersion": "v1", "items": []}`,
		"GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices": `{"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "items": [{"endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"port": 6443}]}]}`,
	}
	for path, body := range static {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { c.answer(w, json.RawMessage(body)) })
	}
	const pods = "/api/v1/namespaces/kube-system/pods"
	mux.HandleFunc("POST "+pods, func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		c.created = &corev1.Pod{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, c.created); err != nil {
			t.Error(err)
		}
		c.created.Name = c.created.GenerateName + "x"
		c.answer(w, c.created)
	})
	mux.HandleFunc("GET "+pods+"/sluice-check-x", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.created.Status = c.status
		c.answer(w, c.created)
		c.asked <- struct{}{}
	})
	mux.HandleFunc("GET "+pods+"/sluice-check-x/log", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, c.log) // the client may be gone
	})
	mux.HandleFunc("DELETE "+pods+"/sluice-check-x", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.deleted = true
		c.answer(w, c.created)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": %q}`, r.URL.Path+" not found")
	})
	c.server = httptest.NewServer(mux)
	t.Cleanup(c.server.Close)
	return c
}

func (c *checked) answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		c.Log(err) // the client may be gone
	}
}

// run runs the plugin.
func (c *checked) run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	c.Helper()
	kubeconfig := filepath.Join(c.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": %q}}], "users": [{"name": "x", "user": {}}]}`, c.server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
	var out, errs strings.Builder
	code = run(ctx, append([]string{"check", "--kubeconfig", kubeconfig}, args...), nil, &out, &errs)
	return code, out.String(), errs.String()
}

func ended(code int32) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}}
}

func waiting(reason string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "of x"}}}}}
}

// A check answers with what its pod printed and its exit code, and leaves no pod, however it
// ends.
func TestCheckRunsInAPodOfItsOwn(t *testing.T) {
	const report = `{"node": "n1", "mode": "ipvs", "findings": [{"level": "todo", "subject": "kernel", "text": "it is\u001b[2J old"}]}`
	image := []string{"--node", "n1", "--image", "example/sluice:v1"}
	for _, tt := range []struct {
		name      string
		status    corev1.PodStatus
		log       string
		args      []string
		code      int
		out, errs string
		noPod     bool
	}{
		{name: "something to do", status: ended(1), log: report, args: image, code: 1, out: "NOT READY: 1 thing to do or to decide first\n\nTODO  kernel: it is\\x1b[2J old\n"},
		{name: "for programs", status: ended(0), log: "Waiting for the API server\n" + report, args: append([]string{"-o", "json"}, image...), out: `"mode": "ipvs"`},
		{name: "no report", status: ended(0), log: "READY: \x1b[32mall is well\x1b[0m\n", args: image, code: 2, errs: "has not answered as Sluice does"},
		{name: "killed", status: ended(137), log: report, args: image, code: 2, errs: "node n1: {"},
		{name: "not possible", status: ended(2), log: "Error: no way to the API server\n", args: image, code: 2, errs: "node n1: no way to the API server"},
		{name: "no image", status: waiting("ImagePullBackOff"), args: image, code: 2, errs: "ImagePullBackOff of x (set --image to an image that the node can get)"},
		{name: "evicted", status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}, args: image, code: 2, errs: "has not run: Evicted"},
		{name: "too slow", status: waiting("ContainerCreating"), args: append([]string{"--timeout", "100ms"}, image...), code: 2, errs: "has not ended"},
		{name: "which image", args: image[:2], code: 2, errs: "set --image", noPod: true},
		{name: "which node", code: 2, errs: "set --node", noPod: true},
		{name: "unknown node", args: []string{"--node", "n2"}, code: 2, errs: "find node n2", noPod: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newChecked(t, tt.status, tt.log)
			code, out, errs := c.run(t.Context(), tt.args...)
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.errs) {
				t.Errorf("exit code %d\n%s%s", code, out, errs)
			}
			if made := c.created != nil; made == tt.noPod || c.deleted != made {
				t.Errorf("there was a pod: %t, deleted: %t", made, c.deleted)
			}
		})
	}
}

func TestInterruptedCheckLeavesNoPod(t *testing.T) {
	c := newChecked(t, waiting("ContainerCreating"), "")
	ctx, interrupt := context.WithCancel(t.Context())
	go func() { <-c.asked; interrupt() }()
	if code, out, errs := c.run(ctx, "--node", "n1", "--image", "i"); code != 2 || !c.deleted {
		t.Errorf("exit code %d, deleted: %t\n%s%s", code, c.deleted, out, errs)
	}
}

// The pod gets the configuration of the cluster, and the API server's own address.
func TestPodOfACheck(t *testing.T) {
	c := newChecked(t, ended(0), `{"findings": []}`)
	if code, _, errs := c.run(t.Context(), "--node", "n1", "--image", "i", "--mode", "nftables"); code != 0 {
		t.Fatal(errs)
	}
	p := c.created
	if p.Annotations[configAnnotation] != "mode: ipvs" || p.Spec.ServiceAccountName != "kube-proxy" || p.Spec.NodeName != "n1" || *p.Spec.ActiveDeadlineSeconds != 121 {
		t.Errorf("the pod is %+v", p)
	}
	wantText(t, fmt.Sprint(p.Spec.Containers[0].Env), "KUBERNETES_SERVICE_HOST 192.0.2.1", "KUBERNETES_SERVICE_PORT 6443")
	wantText(t, fmt.Sprint(p.Spec.Containers[0].Command), "--kubeconfig= --config=/etc/sluice/config.conf --mode=nftables")
	accepted(t, p.Spec.Containers[0].Command)
}

// accepted checks that the binary knows a command line.
func accepted(t *testing.T, line []string) {
	t.Helper()
	var out, errs strings.Builder
	if code := cli.Main(append(line[1:len(line):len(line)], "--help"), &out, &errs); code != 0 {
		t.Errorf("%q: %s", line, errs.String())
	}
}

// The pod of docs/migrate.md is one, and may do what that of the plugin may.
func TestDocumentedPodIsThatOfThePlugin(t *testing.T) {
	text, err := os.ReadFile("../../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	document, _, _ := strings.Cut(rest, "```\n")
	got := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(document), got); err != nil {
		t.Fatal(err)
	}
	want := checkPod("NODE", "localhost/sluice:VERSION", "kube-proxy")
	accepted(t, got.Spec.Containers[0].Command)
	// They have names, and the configuration, in different ways.
	want.ObjectMeta = got.ObjectMeta
	want.TypeMeta, want.Spec.TerminationGracePeriodSeconds = got.TypeMeta, nil
	want.Spec.Containers[0].Command = got.Spec.Containers[0].Command
	want.Spec.Containers[0].VolumeMounts[0].MountPath = "/var/lib/kube-proxy"
	want.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-proxy"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-plugin +docs):\n%s", diff)
	}
}
