package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sluice/test/cluster/process"
	"sluice/test/lab"
)

const nowhere = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// The proxy retries an unreachable API server forever. That is logged once, and
// reported to load balancers, while the proxy stays alive.
func TestUnreachableAPIServerIsReported(t *testing.T) {
	s := &site{TB: t, lab: lab.Start(t)}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(nowhere), 0o600); err != nil {
		t.Fatal(err)
	}
	s.proxy, err = process.Start(s.host("node1"), filepath.Join(t.TempDir(), "kube-proxy.log"),
		path, "--kubeconfig", kubeconfig, "--hostname-override", "node1", "--proxy-mode=nftables")
	if err != nil {
		t.Fatal(err)
	}
	defer s.proxy.Kill()
	health := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10256"), Timeout: lab.DefaultTimeout}
	status := func(path string) (int, error) {
		page, err := s.lab.Get(health, path)
		return page.Status, err
	}
	s.eventually("load balancers learn of it", func(context.Context) error {
		got, err := status("/healthz")
		if got != 503 {
			return errors.Join(err, fmt.Errorf("/healthz says %d", got))
		}
		return nil
	})
	if got, err := status("/livez"); got != 200 {
		t.Errorf("/livez says %d, %v", got, err)
	}
	if err := s.proxy.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.eventually("SIGHUP is logged to have nothing to do", func(context.Context) error {
		return s.proxy.Logged("SIGHUP: there is nothing to read again")
	})
	text, err := os.ReadFile(s.proxy.Log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "Cannot reach the API server"); n != 1 {
		t.Errorf("it was logged %d times, want once, in:\n%s", n, text)
	}
}

// Errors in a kubeconfig end the proxy immediately, with a remedy.
func TestWrongKubeconfigIsReported(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("{[ not a kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := lab.Start(t)
	host, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, kubeconfig, want string }{
		{"missing", filepath.Join(t.TempDir(), "missing"), "missing"},
		{"not a kubeconfig", garbage, "garbage"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			p, err := process.Start(host, log, path, "--kubeconfig", tc.kubeconfig, "--hostname-override", "node1", "--proxy-mode=nftables")
			if err != nil {
				t.Fatal(err)
			}
			<-p.Done
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			if p.Err == nil || !strings.Contains(string(text), "connect to the API server") || !strings.Contains(string(text), tc.want) {
				t.Errorf("it ended with %v and said:\n%s", p.Err, text)
			}
		})
	}
}
