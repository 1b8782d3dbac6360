package kubernetes

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	componentconfig "k8s.io/component-base/config/v1alpha1"
)

// Whatever client-go puts around the transport, as for a CA that may change, connections
// are asked soon whether they still work, unless an administrator said when.
func TestDeadConnectionTimeouts(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		cluster, set string
		soon         bool
	}{
		"CA in a file":               {"certificate-authority: " + ca, "", true},
		"any CA":                     {"insecure-skip-tls-verify: true", "", true},
		"an administrator said when": {"certificate-authority: " + ca, "60", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(readIdleVariable, tt.set)
			path := filepath.Join(t.TempDir(), "kubeconfig")
			text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, %s}}]\n"+
				"users: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", server.URL, tt.cluster)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			client, err := NewClient(componentconfig.ClientConnectionConfiguration{Kubeconfig: path}, "", "test")
			if err != nil {
				t.Fatal(err)
			}
			got := transportIn(t, client.CoreV1().RESTClient().(*rest.RESTClient).Client.Transport).HTTP2
			if soon := got != nil && got.SendPingTimeout == idleBefore && got.PingTimeout == answerWithin; soon != tt.soon {
				t.Errorf("it is asked soon: %v, want %v", soon, tt.soon)
			}
		})
	}
}

func transportIn(t *testing.T, rt http.RoundTripper) *http.Transport {
	t.Helper()
	for {
		switch r := rt.(type) {
		case *http.Transport:
			return r
		case utilnet.RoundTripperWrapper:
			rt = r.WrappedRoundTripper()
		default:
			t.Fatalf("there is a %T around the transport", rt)
		}
	}
}
