package kubernetes

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentconfig "k8s.io/component-base/config/v1alpha1"

	"sluice/internal/testkit"
)

func TestClientErrorsHaveARemedy(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("clusters: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name       string
		kubeconfig string
		want       []string
	}{
		{"nothing given", "", []string{"no kubeconfig", "not a pod", "--kubeconfig", "--master"}},
		{"no such file", filepath.Join(dir, "absent"), []string{filepath.Join(dir, "absent"), "does not exist", "--kubeconfig"}},
		{"no kubeconfig in the file", broken, []string{broken}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewClient(componentconfig.ClientConnectionConfiguration{Kubeconfig: tt.kubeconfig}, "", "")
			if err == nil {
				t.Fatal("there is a client")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// TestClientUsesConfiguredServer looks at the requests that arrive.
func TestClientUsesConfiguredServer(t *testing.T) {
	const protobuf = "application/vnd.kubernetes.protobuf"
	for _, tt := range []struct {
		name         string
		master       bool // given, and the kubeconfig names another server
		noKubeconfig bool
		contentType  string
		accept, auth string
	}{
		{name: "kubeconfig", accept: protobuf, auth: "Bearer secret"},
		{name: "kubeconfig and master", master: true, accept: protobuf, auth: "Bearer secret"},
		{name: "master alone", master: true, noKubeconfig: true, accept: protobuf},
		{name: "JSON", contentType: "application/json", accept: "application/json", auth: "Bearer secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got *http.Request
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r
				refuse(w, http.StatusNotFound, "NotFound")
			}))
			defer server.Close()
			if tt.noKubeconfig {
				server.Start()
			} else {
				server.StartTLS() // tokens are sent over TLS only
			}
			connection, master := componentconfig.ClientConnectionConfiguration{ContentType: tt.contentType, QPS: 5, Burst: 10}, ""
			url := server.URL
			if tt.master {
				url, master = "https://192.0.2.1:1", server.URL
			}
			if !tt.noKubeconfig {
				connection.Kubeconfig = writeKubeconfig(t, url)
			}
			client, err := NewClient(connection, master, "kube-proxy/v1")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = client.CoreV1().Nodes().Get(t.Context(), "here", metav1.GetOptions{})
			if got == nil {
				t.Fatal("no request arrived")
			}
			if accept := got.Header.Get("Accept"); !strings.HasPrefix(accept, tt.accept) {
				t.Errorf("Accept: %q, want %q first", accept, tt.accept)
			}
			if agent := got.Header.Get("User-Agent"); agent != "kube-proxy/v1" {
				t.Errorf("User-Agent: %q", agent)
			}
			if auth := got.Header.Get("Authorization"); auth != tt.auth {
				t.Errorf("Authorization: %q, want %q", auth, tt.auth)
			}
		})
	}
}

func writeKubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What could block whoever reads it is refused, with the field that names it.
func TestPipesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := testkit.MakeFIFO(pipe); err != nil {
		t.Fatal(err)
	}
	config := func(cluster, user string) string {
		path := filepath.Join(dir, "kubeconfig")
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],`+
			`"clusters":[{"name":"c","cluster":{"server":"https://192.0.2.1",%s}}],"users":[{"name":"u","user":{%s}}]}`, cluster, user)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const verified, nobody = `"insecure-skip-tls-verify":true`, `"token":"t"`
	for _, tt := range []struct{ name, cluster, user, want string }{
		{"kubeconfig", "", "", "--kubeconfig"},
		{"token", verified, `"tokenFile":"pipe"`, "user u, tokenFile: " + pipe},
		{"certificate", verified, `"client-certificate":"pipe","client-key":"pipe"`, "user u, client-certificate: " + pipe},
		{"authority", `"certificate-authority":"pipe"`, nobody, "cluster c, certificate-authority: " + pipe},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := pipe
			if tt.cluster != "" {
				path = config(tt.cluster, tt.user)
			}
			_, err := NewClient(componentconfig.ClientConnectionConfiguration{Kubeconfig: path}, "", "")
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "it is not a regular file") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
