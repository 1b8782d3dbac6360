//go:build linux

package lab_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/answer/status"
	"sluice/internal/testkit"
	"sluice/test/fakeapi"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// observer looks at everything that tells of trouble.
type observer struct {
	*asker
	lab *lab.Lab
}

// everywhere waits until texts are in all of them: the status as text and as JSON, the
// page and the answer of explain.
func (o *observer) everywhere(texts ...string) {
	o.t.Helper()
	places := map[string]func() string{
		"status":  func() string { text, _, _ := o.ask("status"); return text },
		"JSON":    func() string { text, _, _ := o.ask("status", "--json"); return strings.ReplaceAll(text, `\"`, `"`) },
		"page":    func() string { return metricsPage(o.lab, "/") },
		"explain": func() string { text, _, _ := o.ask("explain", "default/good"); return text },
	}
	for name, place := range places {
		testkit.Eventually(o.t, func() error {
			text := place()
			for _, want := range texts {
				if !strings.Contains(text, want) {
					return fmt.Errorf("%s does not have %q:\n%s", name, want, text)
				}
			}
			return nil
		})
	}
}

// count waits for the metric.
func (o *observer) count(about string, n int) {
	o.t.Helper()
	eventually(o.t, func() bool {
		return strings.Contains(metricsPage(o.lab, "/metrics"), fmt.Sprintf("\nsluice_advisories{about=%q} %d\n", about, n))
	})
}

// nothing checks that no trouble is left.
func (o *observer) nothing() {
	o.t.Helper()
	r := o.report()
	if len(r.Advisories)+r.ProblemCount > 0 {
		o.t.Errorf("there is still %v, %v", r.Advisories, r.Problems)
	}
	if text, _, _ := o.ask("explain", "default/good"); strings.Contains(text, "warning") {
		o.t.Errorf("explain still warns:\n%s", text)
	}
}

func (o *observer) report() *status.Report {
	o.t.Helper()
	text, errs, _ := o.ask("status", "--json")
	r := &status.Report{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		o.t.Fatalf("%v: %s%s", err, text, errs)
	}
	return r
}

// Trouble with the configuration file is reported everywhere, with its remedy, until
// it is mended.
func TestTroubleWithTheConfigurationIsReported(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir, etc := t.TempDir(), t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	write(t, etc, "config.yaml", liveConfig, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag, "--config", filepath.Join(etc, "config.yaml")}})
	settle(t, p, dir, 0)
	a.ready()
	o := &observer{asker: a, lab: l}
	o.count("configuration", 0)
	o.nothing()

	write(t, etc, "config.yaml", liveConfig+"nodePortAddresses: [nonsense]\n", 0)
	o.count("configuration", 1)
	o.everywhere("config.yaml", "nodePortAddresses", "nonsense", "stays in force", "since")
	said(t, a, l, "serving", "nonsense", 0) // Services work as before
	judged(t, a, l, goodAddress)

	write(t, etc, "config.yaml", liveConfig+"masqueradall: true\n", 0)
	o.everywhere("masqueradall", "did you mean iptables.masqueradeAll?")
	o.count("configuration", 1)

	write(t, etc, "config.yaml", strings.Replace(liveConfig, "nftables", "iptables", 1), 0)
	o.count("restart", 1)
	o.count("configuration", 0)
	o.everywhere("it waits for a restart", "restart the proxy")
	said(t, a, l, "serving", "it waits for a restart", 0)
	judged(t, a, l, goodAddress)
	if ports := configz(t, l); !strings.Contains(ports, `"mode":"nftables"`) || !strings.Contains(ports, `"nodePortAddresses":["primary"]`) {
		t.Errorf("/configz is not what is in force: %s", ports)
	}

	write(t, etc, "config.yaml", liveConfig, 0)
	o.count("restart", 0)
	o.nothing()
}

// A node name that the manifests do not have is reported, as is a kubeconfig that is
// not used.
func TestWrongNodeNameIsReported(t *testing.T) {
	t.Parallel()
	inEachMode(t, testWrongNodeName)
}

func testWrongNodeName(t *testing.T, mode string) {
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", strings.ReplaceAll(dualGood, "node1", "worker-7"), 0)
	p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{
		flag, "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48", "--kubeconfig=/nowhere/kubeconfig",
	}})
	settle(t, p, dir, 0)
	a.ready()
	o := &observer{asker: a, lab: l}
	o.count("node", 1)
	o.count("configuration", 1)
	o.everywhere("Node node1", "worker-7", "--hostname-override", "/nowhere/kubeconfig is not used", "leave out --manifests")
	said(t, a, l, "serving", "", 0)
	judged(t, a, l, dualAddresses...)
	logged(t, p, 1, "Warning: Node node1: metadata.name")
	logged(t, p, 1, "/nowhere/kubeconfig is not used")

	write(t, dir, "good.yaml", dualGood, 0)
	o.count("node", 0)
	logged(t, p, 1, `"This warning no longer holds" logger="node" warning="Node node1`)
	logged(t, p, 1, "Warning: Node node1: metadata.name")
}

// logged waits until a text is so many times in the log.
func logged(t *testing.T, p *lab.Proxy, times int, text string) {
	t.Helper()
	testkit.Eventually(t, func() error {
		if n := strings.Count(p.Log().String(), text); n != times {
			return fmt.Errorf("%q is %d times in the log, want %d:\n%s", text, n, times, p.Log().String())
		}
		return nil
	})
}

// A cluster CIDR in which no pod is, and one without a family of the Services, are reported by
// the proxy, and by the check before it starts.
func TestWrongClusterCIDRIsReported(t *testing.T) {
	t.Parallel()
	inEachMode(t, testWrongClusterCIDR)
}

func testWrongClusterCIDR(t *testing.T, mode string) {
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", dualGood, 0)
	write(t, dir, "both.yaml", bothFamilies, 0)
	const cidr = "--cluster-cidr=172.16.0.0/16"
	texts := []string{"addresses of endpoints is in 172.16.0.0/16", "it has no IPv6 range, but Service default/", "clusterCIDR (--cluster-cidr)"}
	out, errs, code := a.run("check", cidr, "--manifests", dir, "--node", "node1", "--mode", scenario.Modes[mode].Name)
	for _, want := range texts {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, and check does not have %q:\n%s%s", code, want, out, errs)
		}
	}
	p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{flag, cidr}})
	settle(t, p, dir, 0)
	a.ready()
	o := &observer{asker: a, lab: l}
	o.count("configuration", 2)
	o.everywhere(texts...)
	logged(t, p, 1, "Warning: Cluster CIDR: clusterCIDR")
	said(t, a, l, "serving", "", 0)
	judged(t, a, l, dualAddresses...)
	// Pods are masqueraded in the family of the CIDR, by which they are not recognised, and are told so.
	for at, tt := range map[netip.AddrPort]struct {
		pod, says string
		masked    bool
	}{
		dualAddresses[0]: {"10.244.1.3", "masquerade     yes", true},
		dualAddresses[1]: {"fd00:10:244:1::3", "masquerade     no", false},
	} {
		if seen := l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: at}).Source.Addr(); a.node.Owns(seen) != tt.masked {
			t.Errorf("the endpoint of %v sees %v", at, seen)
		}
		if out, _, _ := a.ask("explain", at.String(), "--from", tt.pod); !strings.Contains(out, tt.says) {
			t.Errorf("%q is not in\n%s", tt.says, out)
		}
	}
}

// The proxy that programs the node says that a second one waits for it.
func TestSecondProxyIsReported(t *testing.T) {
	t.Parallel()
	inEachMode(t, testSecondProxy)
}

func testSecondProxy(t *testing.T, mode string) {
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", dualGood, 0)
	p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
	settle(t, p, dir, 0)
	a.ready()
	second := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir})
	o := &observer{asker: a, lab: l}
	o.count("node", 1)
	o.everywhere("another kube-proxy (pid", "has waited since", "end one of the two")
	logged(t, p, 1, "Warning: Second kube-proxy")
	logged(t, p, 1, `reason="NodeProblem"`)
	said(t, a, l, "serving", "", 0)
	judged(t, a, l, dualAddresses...)
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	o.count("node", 0)
	logged(t, p, 1, `"This warning no longer holds" logger="node" warning="Second kube-proxy`)
}

// An API server that is away, and a Node object that is missing, are reported until
// they are back.
func TestTroubleWithTheAPIServerIsReported(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	api := fakeapi.New()
	listen := func(address string) (listener net.Listener) {
		t.Helper()
		if err := a.node.Do(func() (err error) { listener, err = net.Listen("tcp", address); return err }); err != nil {
			t.Fatal(err)
		}
		return listener
	}
	listener := listen("127.0.0.1:0")
	address := listener.Addr().String()
	api.Serve(listener)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "good"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	ready, port := true, int32(8080)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "good-1", Labels: map[string]string{discoveryv1.LabelServiceName: "good"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
	set := func(objects ...fakeapi.Object) {
		t.Helper()
		if err := api.Set(append(objects, service, slice)); err != nil {
			t.Fatal(err)
		}
	}
	set()
	launch(t, l, lab.ProxyOptions{Flags: []string{flag, "--manifests=", "--cluster-cidr=10.244.0.0/16", "--master=http://" + address}})
	a.ready()
	o := &observer{asker: a, lab: l}
	o.everywhere("there is no Node object of this name", "--hostname-override")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	set(node)
	eventually(t, func() bool { return o.report().ProblemCount == 0 })
	o.nothing()
	said(t, a, l, "serving", "", 0)
	judged(t, a, l, goodAddress)

	api.Close()
	o.everywhere("connection refused")
	said(t, a, l, "serving the past", "the API server has not been reachable for ", 1)
	judged(t, a, l, goodAddress)
	eventually(t, func() bool { return strings.Contains(metricsPage(l, "/metrics"), "\nsluice_api_server_connected 0\n") })
	if s := o.report().APIServer; s.Connected || s.Since.IsZero() || s.Remedy == "" {
		t.Errorf("the status has %+v", s)
	}

	api = fakeapi.New()
	defer api.Close()
	set(node)
	api.Serve(listen(address))
	eventually(t, func() bool { return strings.Contains(metricsPage(l, "/metrics"), "\nsluice_api_server_connected 1\n") })
	o.nothing()
}
