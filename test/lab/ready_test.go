package lab_test

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/test/fakeapi"
	"sluice/test/lab"
)

// listenOn listens on a host.
func listenOn(t *testing.T, host *lab.Host, address string) (listener net.Listener) {
	t.Helper()
	if err := host.Do(func() (err error) { listener, err = net.Listen("tcp", address); return err }); err != nil {
		t.Fatal(err)
	}
	return listener
}

// cluster has a Service and the Node.
func cluster(t *testing.T) *fakeapi.Server {
	t.Helper()
	api := fakeapi.New()
	if err := api.Set([]fakeapi.Object{
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "good"},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 80}}},
		},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}},
	}); err != nil {
		t.Fatal(err)
	}
	return api
}

const healthServer = "127.0.0.1:10256"

// notReady waits until /readyz gives a reason. No load balancer is told otherwise at any time,
// while a restart would not help.
func notReady(t *testing.T, l *lab.Lab, reason string) {
	t.Helper()
	for _, path := range []string{"/healthz", "/readyz"} {
		eventually(t, func() bool {
			page := ask(t, l, "node1", healthServer, path)
			if page.Status != 503 || !strings.Contains(page.Text, `"healthy":false`) {
				t.Fatalf("%s says\n%s", path, page.Text)
			}
			return strings.Contains(page.Text, reason)
		})
	}
	if live := ask(t, l, "node1", healthServer, "/livez"); live.Status != 200 {
		t.Errorf("/livez says\n%s", live.Text)
	}
}

func ready(t *testing.T, l *lab.Lab) {
	t.Helper()
	for _, path := range []string{"/healthz", "/readyz"} {
		eventually(t, func() bool { return ask(t, l, "node1", healthServer, path).Status == 200 })
	}
}

// A rolling update goes on when the proxy has heard from its API server and programmed
// the kernel. It is not stopped by an outage afterwards.
func TestReadyOnceTheAPIServerHasAnswered(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	node, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	listener := listenOn(t, node, "127.0.0.1:0")
	address := listener.Addr().String()
	listener.Close()
	a, flag := newAsker(t, l)
	launch(t, l, lab.ProxyOptions{Flags: []string{flag, "--manifests=", "--cluster-cidr=10.244.0.0/16", "--master=http://" + address}})
	a.ready()
	notReady(t, l, "the API server has not been reachable for ")
	said(t, a, l, "not serving", "the API server has not been reachable for ", 1)
	if out, errs, code := a.ask("explain", "10.96.0.1:80"); code != 1 {
		t.Errorf("explain ends with %d: %s%s", code, out, errs)
	}
	notReady(t, l, "connection refused")

	api := cluster(t)
	api.SetFault(fakeapi.Faults["answers 500"])
	api.Serve(listenOn(t, node, address))
	notReady(t, l, "the API server has not been reachable for ")
	api.SetFault(nil)
	ready(t, l)

	api.Close()
	eventually(t, func() bool { return strings.Contains(metricsPage(l, "/metrics"), "\nsluice_api_server_connected 0\n") })
	if page := ask(t, l, "node1", healthServer, "/readyz"); page.Status != 200 {
		t.Errorf("while the API server is away, /readyz says\n%s", page.Text)
	}
}

// A directory of manifests that is not there is no empty one. Whoever acts on the first 200
// finds the Services answering.
func TestReadyOnceThereAreManifests(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode string) {
		l := lab.Start(t)
		prepared := t.TempDir()
		write(t, prepared, "good.yaml", goodManifests, 0)
		dir := filepath.Join(t.TempDir(), "manifests")
		startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir})
		notReady(t, l, "the manifests cannot be read: ")
		if err := os.Rename(prepared, dir); err != nil {
			t.Fatal(err)
		}
		ready(t, l)
		answered(t, l, netip.MustParseAddrPort("10.96.0.1:80"))
	})
}
