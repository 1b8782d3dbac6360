//go:build linux

package lab_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/test/fakeapi"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// listenOn listens on a host.
func listenOn(t *testing.T, host *lab.Host, address string) (listener net.Listener) {
	t.Helper()
	if err := host.Do(func() (err error) { listener, err = net.Listen("tcp", address); return err }); err != nil {
		t.Fatal(err)
	}
	return listener
}

// cluster has a Service at these addresses, and the Node.
func cluster(t *testing.T, clusterIPs ...string) *fakeapi.Server {
	t.Helper()
	api := fakeapi.New()
	if err := api.Set([]fakeapi.Object{
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "good"},
			Spec:       corev1.ServiceSpec{ClusterIP: clusterIPs[0], ClusterIPs: clusterIPs, Ports: []corev1.ServicePort{{Port: 80}}},
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
	inEachMode(t, testReadyWithAPIServer)
}

func testReadyWithAPIServer(t *testing.T, mode string) {
	l := lab.Start(t)
	node, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	listener := listenOn(t, node, "127.0.0.1:0")
	address := listener.Addr().String()
	listener.Close()
	a, flag := newAsker(t, l)
	startProxy(t, l, mode, lab.ProxyOptions{Flags: []string{flag, "--manifests=", "--cluster-cidr=10.244.0.0/16", "--master=http://" + address}})
	a.ready()
	notReady(t, l, "the API server has not been reachable for ")
	said(t, a, l, "not serving", "the API server has not been reachable for ", 1)
	unanswered(t, a, l)
	notReady(t, l, "connection refused")

	api := cluster(t, "10.96.0.1", "fd00:10:96::1")
	api.SetFault(fakeapi.Faults["answers 500"])
	api.Serve(listenOn(t, node, address))
	notReady(t, l, "the API server has not been reachable for ")
	api.SetFault(nil)
	ready(t, l)
	for _, to := range dualAddresses { // it has no endpoints
		if o := l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: to}); o.Kind != lab.Refused {
			t.Errorf("%v: %v", to, o)
		}
	}

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

// The first 200 means that all Services are served: of a node without rules, of one with those of a
// process that was killed, and of one that lost them while there was none.
func TestHealthyMeansServed(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode string) {
		const services, tried = 500, 40
		l := lab.Start(t)
		node, err := l.Host("node1")
		if err != nil {
			t.Fatal(err)
		}
		api := cluster(t, "10.96.0.1", "fd00:10:96::1")
		defer api.Close()
		var objects []fakeapi.Object
		var flows []lab.Flow
		for i := range services {
			name, ip := fmt.Sprint("web-", i), netip.AddrFrom4([4]byte{10, 96, byte(1 + i/250), byte(1 + i%250)})
			objects = append(objects, apiService(name, ip.String(), 80), apiSlice(name, discoveryv1.AddressTypeIPv4, []string{"10.244.1.1"}))
			if i%(services/tried) == 0 && len(flows) < tried {
				flows = append(flows, lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.AddrPortFrom(ip, 80)})
			}
		}
		if err := api.Put(objects...); err != nil {
			t.Fatal(err)
		}
		listener := listenOn(t, node, "127.0.0.1:0")
		api.Serve(listener)
		health := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort(healthServer), Timeout: lab.DefaultTimeout}
		nothing := func() {}
		for _, start := range []struct {
			name   string
			before func()
		}{
			{"nothing", nothing},
			{"the rules of before", nothing},
			{"no rules any more", func() {
				if _, err := node.Run(t.Context(), lab.Command{Args: scenario.Modes[mode].Flush}); err != nil {
					t.Fatal(err)
				}
			}},
		} {
			start.before()
			p := startProxy(t, l, mode, lab.ProxyOptions{Flags: []string{"--manifests=", "--cluster-cidr=10.244.0.0/16", "--master=http://" + listener.Addr().String()}})
			eventually(t, func() bool {
				page, err := l.Get(health, "/healthz")
				return err == nil && page.Status == 200
			})
			for i, o := range l.Probe(t.Context(), flows) {
				if o.Kind != lab.Answered {
					t.Errorf("there was %s: it is healthy, and %v: %v", start.name, flows[i], o)
				}
			}
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// An API server that has no version that the proxy asks for is asked again with pauses, which differ,
// and followed as soon as it has.
func TestExpiredWatchesAreNoFlood(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	node, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	api := cluster(t, "10.96.0.1", "fd00:10:96::1")
	defer api.Close()
	listener := listenOn(t, node, "127.0.0.1:0")
	api.Serve(listener)
	launch(t, l, lab.ProxyOptions{Flags: []string{"--manifests=", "--proxy-mode=nftables", "--cluster-cidr=10.244.0.0/16", "--master=http://" + listener.Addr().String()}})
	ready(t, l)
	var mu sync.Mutex
	var asked []time.Time // for Services
	total, began := 0, time.Now()
	api.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		total++
		if r.URL.Path == "/api/v1/services" && r.URL.Query().Get("watch") == "true" {
			asked = append(asked, time.Now())
		}
		mu.Unlock()
		fakeapi.Faults["says that watches are too old"](w, r, next)
	})
	api.Disconnect()
	eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(asked) >= 5 })
	mu.Lock()
	perSecond := float64(total) / time.Since(began).Seconds()
	pauses := map[time.Duration]bool{}
	for i, at := range asked[1:] {
		pauses[at.Sub(asked[i]).Round(time.Millisecond)] = true
	}
	mu.Unlock()
	t.Logf("%.1f requests a second, pauses of %v", perSecond, slices.Sorted(maps.Keys(pauses)))
	if perSecond > 30 || len(pauses) < 3 {
		t.Errorf("%.1f requests a second, pauses of %v", perSecond, slices.Sorted(maps.Keys(pauses)))
	}
	api.SetFault(nil)
	if err := api.Put(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.2", ClusterIPs: []string{"10.96.0.2"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { // it has no endpoints
		return l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.2:80"), Timeout: lab.ShortTimeout}).Kind == lab.Refused
	})
}
