package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sluice/internal/testkit"
	"sluice/test/cluster/apiserver"
	"sluice/test/cluster/process"
	"sluice/test/cluster/tunnel"
	"sluice/test/lab"
)

// timeout is for conditions that must become true. Clients of an API server
// that was away may pause for 30 s before they try again.
const timeout = 2 * time.Minute

// controlPlane is the node on which the API server seems to run.
const controlPlane = "node2"

// site is a lab with an API server that the proxy on node1 follows.
type site struct {
	testing.TB
	lab    *lab.Lab
	server *apiserver.Server
	tunnel *tunnel.Tunnel // from node1 to the API server
	client kubernetes.Interface
	proxy  *process.Process
}

// start builds a site with the nodes of the lab as its only objects.
func start(t testing.TB) *site {
	t.Helper()
	s := startWithoutProxy(t)
	s.proxy = s.startProxy()
	return s
}

func startWithoutProxy(t testing.TB) *site {
	t.Helper()
	s := &site{TB: t, lab: lab.Start(t)}
	var err error
	s.server, err = servers.Take(t.Context(), apiserver.Options{
		ServiceCIDRs: lab.ServiceCIDRs[:],
		Advertise:    s.host(controlPlane).Addrs[0],
	})
	if err != nil {
		t.Fatal(err)
	}
	s.closeLater(func() error { return servers.Give(context.WithoutCancel(t.Context()), s.server) })
	s.client = s.server.Admin()
	s.tunnel = s.dig("node1", s.server.Addr())
	s.createNode("node1", lab.Node1PodCIDRs[:]...)
	s.createNode("node2", lab.Node2PodCIDRs[:]...)
	return s
}

func (s *site) host(name string) *lab.Host {
	s.Helper()
	h, err := s.lab.Host(name)
	if err != nil {
		s.Fatal(err)
	}
	return h
}

func (s *site) closeLater(close func() error) {
	s.Cleanup(func() {
		if err := close(); err != nil {
			s.Error(err)
		}
	})
}

// dig makes the API server reachable at an address of a host.
func (s *site) dig(host string, at netip.AddrPort) *tunnel.Tunnel {
	s.Helper()
	t, err := tunnel.Open(s.host(host), at, s.server.Addr())
	if err != nil {
		s.Fatal(err)
	}
	s.closeLater(t.Close)
	return t
}

func (s *site) createNode(name string, podCIDRs ...netip.Prefix) {
	s.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, p := range podCIDRs {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
	}
	node, err := s.client.CoreV1().Nodes().Create(s.Context(), node, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, a := range s.host(name).Addrs {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	if _, err := s.client.CoreV1().Nodes().UpdateStatus(s.Context(), node, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// restart brings the API server back.
func (s *site) restart() {
	s.Helper()
	if err := s.server.Restart(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// startProxy starts the proxy on node1, with further flags. It ends with the test.
func (s *site) startProxy(flags ...string) *process.Process {
	s.Helper()
	path, err := binary()
	if err != nil {
		s.Fatal(err)
	}
	kubeconfig, err := s.server.Kubeconfig(apiserver.KubeProxy)
	if err != nil {
		s.Fatal(err)
	}
	return s.run(append([]string{path, "--kubeconfig", kubeconfig, "--hostname-override", "node1", "-v", "2", "--proxy-mode", "nftables"}, flags...)...)
}

// run runs a command on node1 that is the proxy, or starts it. It ends with the
// test.
func (s *site) run(command ...string) *process.Process {
	s.Helper()
	return s.runOn("node1", command...)
}

func (s *site) runOn(node string, command ...string) *process.Process {
	s.Helper()
	p, err := process.Start(s.host(node), filepath.Join(s.TempDir(), "kube-proxy.log"), command...)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := p.Kill(); err != nil {
			s.Error(err)
		}
		if s.Failed() {
			s.Logf("The end of the log of the proxy on %s:\n%s", node, p.Tail())
		}
	})
	return p
}

// binary returns the path of the proxy: the one in the environment, or one built
// from the main module, with the dependencies that it has there.
var binary = sync.OnceValues(func() (string, error) {
	if os.Getenv(lab.BinaryVariable) != "" {
		return lab.Binary()
	}
	path := filepath.Join(buildDir, "kube-proxy")
	build := exec.Command("go", "build", "-C", "../..", "-buildvcs=false", "-o", path, "./cmd/kube-proxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build kube-proxy: %w\n%s", err, output)
	}
	return path, nil
})

// buildDir is shared by all tests.
var buildDir string

// servers are those that no test uses at the moment.
var servers apiserver.Pool

func TestMain(m *testing.M) {
	os.Exit(inBuildDir(func() int {
		code := m.Run()
		if err := servers.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}))
}

func inBuildDir(tests func() int) int {
	var err error
	// By this name, lab.Sweep finds what a killed test leaves.
	if buildDir, err = os.MkdirTemp("", fmt.Sprintf("sluice-lab-%d-*-binary", os.Getpid())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(buildDir)
	return tests()
}

// eventually tries until there is no error.
func (s *site) eventually(what string, try func(context.Context) error) {
	s.Helper()
	s.within(timeout, what, try)
}

// within retries until there is no error, for that long.
func (s *site) within(timeout time.Duration, what string, try func(context.Context) error) {
	s.Helper()
	ctx, cancel := testkit.WithTimeout(s.Context(), timeout)
	defer cancel()
	var ended <-chan struct{} // never, while there is no proxy
	if s.proxy != nil {
		ended = s.proxy.Done
	}
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ended:
			s.Fatalf("%s: the proxy has ended: %v", what, s.proxy.Err)
		case <-ctx.Done():
			s.Fatalf("%s: %v", what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
