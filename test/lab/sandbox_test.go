//go:build linux

package lab_test

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/test/fakeapi"
	"sluice/test/lab"
)

// sandboxService is a Service with node ports of TCP, UDP and SCTP, in both families.
// Its slices follow.
const sandboxService = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  externalTrafficPolicy: %s
  clusterIP: 10.96.0.1
  clusterIPs: [10.96.0.1, "fd00:10:96::1"]
  ipFamilies: [IPv4, IPv6]
  ports:
  - {name: tcp, port: 80, nodePort: 30080}
  - {name: udp, port: 80, nodePort: 30080, protocol: UDP}
  - {name: sctp, port: 80, nodePort: 30080, protocol: SCTP}
`

// sandboxSlice is a slice of that Service.
const sandboxSlice = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: %[2]s
ports: [{name: tcp, port: %[3]d}, {name: udp, port: %[3]d, protocol: UDP}, {name: sctp, port: %[3]d, protocol: SCTP}]
endpoints: [%[4]s]
`

// sandboxManifests returns the Service with these endpoints, each a host and its port.
func sandboxManifests(t *testing.T, l *lab.Lab, policy string, endpoints map[string]int) string {
	t.Helper()
	out := fmt.Sprintf(sandboxService, policy)
	for name, port := range endpoints {
		host, err := l.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, family := range []string{"IPv4", "IPv6"} {
			out += fmt.Sprintf(sandboxSlice, strings.ToLower(name+"-"+family), family, port,
				fmt.Sprintf("{addresses: [%q], nodeName: %s}", host.Addrs[i], host.Node))
		}
	}
	return out
}

// sandbox is a proxy without privileges.
type sandbox struct {
	*asker
	lab       *lab.Lab
	manifests string
	start     func(flags ...string) *lab.Proxy
	proxy     *lab.Proxy
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	s := &sandbox{lab: lab.Start(t)}
	var asNobody func(string) string
	asNobody, s.manifests = unprivileged(t)
	if err := os.Remove(filepath.Join(s.manifests, "good.yaml")); err != nil {
		t.Fatal(err)
	}
	binary := asNobody("-all")
	a, _ := newAsker(t, s.lab)
	run := filepath.Dir(filepath.Dir(a.socket))
	if err := os.Chown(run, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	a.binary, s.asker = binary, a
	s.start = func(flags ...string) *lab.Proxy {
		flags = append([]string{"--sandbox", "--control-socket=" + a.socket, "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48"}, flags...)
		return launch(t, s.lab, lab.ProxyOptions{Binary: binary, Manifests: s.manifests, Flags: flags})
	}
	return s
}

// begin starts the proxy and waits until it serves.
func (s *sandbox) begin(flags ...string) {
	s.t.Helper()
	s.proxy = s.start(flags...)
	settle(s.t, s.proxy, s.manifests, 0)
	s.ready()
}

// apply writes the Service and waits until the proxy has it.
func (s *sandbox) apply(policy string, endpoints map[string]int) {
	s.t.Helper()
	mark := s.proxy.Log().Len()
	write(s.t, s.manifests, "web.yaml", sandboxManifests(s.t, s.lab, policy, endpoints), 0)
	settle(s.t, s.proxy, s.manifests, mark)
}

// sandboxFlows are connections to the node port: both protocols and families.
func sandboxFlows(from string) (out []lab.Flow) {
	for _, to := range []string{"192.0.2.10:30080", "[2001:db8::10]:30080"} {
		for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP} {
			out = append(out, lab.Flow{From: from, Protocol: protocol, To: netip.MustParseAddrPort(to)})
		}
	}
	return out
}

// want connects from a host until each of the others, and nobody else, has answered.
func (s *sandbox) want(from string, by ...string) {
	s.t.Helper()
	for _, flow := range sandboxFlows(from) {
		seen := map[string]int{}
		for range 60 {
			o := s.lab.Connect(s.t.Context(), flow)
			if o.Kind != lab.Answered {
				s.t.Errorf("%v: %v", flow, o)
				return
			}
			if !slices.Contains(by, o.By) {
				s.t.Errorf("%v: answered by %s, want one of %v", flow, o.By, by)
				return
			}
			if seen[o.By]++; len(seen) == len(by) && seen[o.By] > 2 {
				break
			}
		}
		if len(seen) != len(by) {
			s.t.Errorf("%v: answered by %v, want all of %v", flow, slices.Collect(maps.Keys(seen)), by)
		}
	}
}

// wantNone expects that nobody answers.
func (s *sandbox) wantNone(flows ...lab.Flow) {
	s.t.Helper()
	for i := range flows {
		flows[i].Timeout = lab.ShortTimeout
	}
	for i, o := range s.lab.Probe(s.t.Context(), flows) {
		if o.Kind == lab.Answered {
			s.t.Errorf("%v: %v", flows[i], o)
		}
	}
}

// A user without any privileges can serve node ports.
func TestSandbox(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	write(t, s.manifests, "web.yaml", sandboxManifests(t, s.lab, "Cluster", map[string]int{"pod1": 8080, "remote1": 8081}), 0)
	s.begin()
	for _, from := range []string{"client", "pod2", "node1", "remote2"} {
		s.want(from, "pod1", "remote1")
	}
	loopback := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:30080")}
	if o := s.lab.Connect(t.Context(), loopback); o.Kind != lab.Answered {
		t.Errorf("%v: %v", loopback, o)
	}
	// Nothing else is served, and that is no secret.
	s.wantNone(lab.Flow{From: "pod2", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80")},
		lab.Flow{From: "client", Protocol: lab.SCTP, To: netip.MustParseAddrPort("192.0.2.10:30080")})
	if out, errs, code := s.ask("explain", "10.96.0.1:80"); code != 1 || !strings.Contains(out, "only node ports") {
		t.Errorf("explain: exit code %d, %s%s", code, out, errs)
	}
	out, errs, code := s.ask("status")
	if code != 0 || !strings.Contains(out, "sandbox mode") || !strings.Contains(out, "only node ports") || !strings.Contains(out, "30080/SCTP is not served") {
		t.Errorf("status: exit code %d, %s%s", code, out, errs)
	}
	// The proxy's own sockets take connections to Services that nobody answers.
	if out, errs, code := s.ask("explain", "--try", "192.0.2.10:30080"); code != 0 || !strings.Contains(out, "answered by ") {
		t.Errorf("trying it ends with %d, %s%s", code, out, errs)
	}
	s.apply("Cluster", map[string]int{"pod1": 9999})
	if out, errs, code := s.ask("explain", "--try", "192.0.2.10:30080"); code != 1 || !strings.Contains(out, "refused by 10.244.1.1:9999") {
		t.Errorf("trying it where nothing listens ends with %d, %s%s", code, out, errs)
	}
	for _, line := range failures(s.proxy) {
		t.Errorf("it tried what it must not: %s", line)
	}
}

// Connections follow the endpoints: new ones at once, those that exist stay.
func TestSandboxFollowsEndpoints(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	write(t, s.manifests, "web.yaml", sandboxManifests(t, s.lab, "Cluster", map[string]int{"pod1": 8080}), 0)
	s.begin("--shutdown-grace=10m")
	var held []*lab.Session
	for _, flow := range sandboxFlows("client") {
		if flow.Protocol == lab.UDP { // a datagram may be lost below
			flow.Timeout = lab.ShortTimeout
		}
		session, err := s.lab.Open(flow)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		if a, err := session.Ask(); err != nil || a.By != "pod1" {
			t.Fatalf("%v: %v, answered by %q", flow, err, a.By)
		}
		held = append(held, session)
	}
	// The refusing endpoint is passed over.
	s.apply("Cluster", map[string]int{"pod2": 8080, "pod3": 9999})
	s.want("client", "pod2")
	for i, flow := range sandboxFlows("client") {
		want := "pod1"
		if flow.Protocol == lab.UDP {
			want = "pod2"
		}
		a, err := held[i].Ask()
		if flow.Protocol == lab.UDP && err != nil { // it went to the one that refuses
			a, err = held[i].Ask()
		}
		if err != nil || a.By != want {
			t.Errorf("%v: %v, answered by %q, want %s", flow, err, a.By, want)
		}
	}
	s.apply("Cluster", nil)
	s.wantNone(sandboxFlows("client")...)
	s.apply("Cluster", map[string]int{"pod3": 8080})
	s.want("client", "pod3")

	// What exists has time to end, and another process serves meanwhile.
	for _, session := range held[1:] {
		session.Close()
	}
	old, ended := s.proxy, make(chan error, 1)
	go func() { ended <- old.Stop() }()
	eventually(t, func() bool { return s.lab.Connect(t.Context(), sandboxFlows("client")[0]).Kind == lab.Refused })
	s.wantNone(sandboxFlows("client")...)
	s.begin()
	s.want("client", "pod3")
	if a, err := held[0].Ask(); err != nil || a.By != "pod1" {
		t.Errorf("through the old process: %v, answered by %q", err, a.By)
	}
	held[0].Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := s.proxy.Kill(); err != nil {
		t.Fatal(err)
	}
	s.begin()
	s.want("client", "pod3")
}

// Under policy Local a client's address tells whether it is outside.
func TestSandboxPolicyLocal(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	write(t, s.manifests, "web.yaml", sandboxManifests(t, s.lab, "Local", map[string]int{"pod1": 8080, "remote1": 8080}), 0)
	s.begin()
	s.want("client", "pod1")
	s.want("pod2", "pod1", "remote1")
	s.want("node1", "pod1", "remote1")
	s.apply("Local", map[string]int{"remote1": 8080})
	s.wantNone(sandboxFlows("client")...)
	s.want("pod2", "remote1")
}

// A port that another program has harms no other, and is served once it is free.
func TestSandboxPortInUse(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	var taken net.Listener
	if err := s.node.Do(func() (err error) { taken, err = net.Listen("tcp", "192.0.2.10:30080"); return err }); err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	write(t, s.manifests, "web.yaml", sandboxManifests(t, s.lab, "Cluster", map[string]int{"pod1": 8080}), 0)
	s.begin()
	flows := sandboxFlows("client")
	for _, flow := range flows[1:] {
		if o := s.lab.Connect(t.Context(), flow); o.Kind != lab.Answered {
			t.Errorf("%v: %v", flow, o)
		}
	}
	out, errs, code := s.ask("status")
	if code != 1 || !strings.Contains(out, "FAILED") || !strings.Contains(out, "192.0.2.10:30080: bind: address already in use (end the program that uses the port") {
		t.Errorf("status: exit code %d, %s%s", code, out, errs)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return s.lab.Connect(t.Context(), flows[0]).Kind == lab.Answered })
	eventually(t, func() bool { _, _, code := s.ask("status"); return code == 0 })
}

// With an API server it is the same.
func TestSandboxWithAPIServer(t *testing.T) {
	t.Parallel()
	s, api := newSandbox(t), fakeapi.New()
	defer api.Close()
	var listener net.Listener
	if err := s.node.Do(func() (err error) { listener, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		t.Fatal(err)
	}
	api.Serve(listener)
	port, protocol := int32(8080), corev1.ProtocolTCP
	set := func(endpoint string) {
		t.Helper()
		err := api.Set([]fakeapi.Object{
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}},
			&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
				Spec: corev1.ServiceSpec{
					Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
					Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080, Protocol: protocol}},
				},
			},
			&discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
				},
				AddressType: discoveryv1.AddressTypeIPv4,
				Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
				Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{endpoint}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	answeredBy := func(name string) {
		t.Helper()
		eventually(t, func() bool { return s.lab.Connect(t.Context(), sandboxFlows("client")[0]).By == name })
	}
	set("10.244.1.1")
	s.proxy = s.start("--manifests=", "--master=http://"+listener.Addr().String())
	answeredBy("pod1")
	set("10.244.2.1")
	answeredBy("remote1")
}
