//go:build guest

package ipvs

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice/internal/source"
	"sluice/test/cluster/process"
	"sluice/test/fakeapi"
	"sluice/test/lab"
)

// apiAddress is the address of the API server on node1.
const apiAddress = "127.0.0.1:6443"

// timeout is for conditions that must become true.
const timeout = 2 * time.Minute

// node is a lab whose node1 has an API server, with the Service web, and one kube-proxy
// after the other.
type node struct {
	testing.TB
	lab    *lab.Lab
	server *fakeapi.Server
	proxy  *process.Process
}

// service is a Service with TCP and UDP in both families, behind these pods.
type service struct {
	name, proxy                 string // proxy is its label, "" for none
	clusterIPs, loadBalancerIPs []netip.Addr
	nodePort                    int32
	pods                        []string
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{TB: t, lab: lab.Start(t), server: fakeapi.New()}
	var listener net.Listener
	if err := n.host("node1").Do(func() (err error) {
		listener, err = net.Listen("tcp", apiAddress)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	n.server.Serve(listener)
	t.Cleanup(func() {
		if err := n.server.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) host(name string) *lab.Host {
	n.Helper()
	h, err := n.lab.Host(name)
	if err != nil {
		n.Fatal(err)
	}
	return h
}

// run runs a shell command on the node and returns its output.
func (n *node) run(command string) string {
	n.Helper()
	out, err := n.host("node1").Run(context.Background(), lab.Command{Args: []string{"sh", "-ec", command}})
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// The frontends of the Service web.
var (
	clusterIPs      = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:10:96::10")}
	loadBalancerIPs = []netip.Addr{netip.MustParseAddr("198.18.0.20"), netip.MustParseAddr("2001:db8:18::20")}
)

const (
	port       = 80
	nodePort   = 30080
	targetPort = 8080
)

// web returns the Service web, whose endpoints are these pods.
func web(pods ...string) service {
	return service{name: "web", clusterIPs: clusterIPs, loadBalancerIPs: loadBalancerIPs, nodePort: nodePort, pods: pods}
}

// publish makes these pods the endpoints of web.
func (n *node) publish(pods ...string) {
	n.Helper()
	n.publishAll(web(pods...))
}

// publishAll makes these the Services that there are.
func (n *node) publishAll(services ...service) {
	n.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	for _, a := range n.host("node1").Addrs {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	objects := []fakeapi.Object{node}
	for _, s := range services {
		objects = append(objects, n.objectsOf(s)...)
	}
	if err := n.server.Set(objects); err != nil {
		n.Fatal(err)
	}
}

// objectsOf returns a Service and its EndpointSlices.
func (n *node) objectsOf(s service) []fakeapi.Object {
	n.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeLoadBalancer,
			ClusterIP:  s.clusterIPs[0].String(),
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
		},
	}
	if s.proxy != "" {
		svc.Labels = map[string]string{source.LabelServiceProxyName: s.proxy}
	}
	for _, ip := range s.clusterIPs {
		svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, ip.String())
	}
	for _, ip := range s.loadBalancerIPs {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{IP: ip.String(), IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)})
	}
	objects := []fakeapi.Object{svc}
	for i, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: s.name + "-" + strings.ToLower(string(family)), Namespace: svc.Namespace,
				Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
			},
			AddressType: family,
		}
		for _, pod := range s.pods {
			host := n.host(pod)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{host.Addrs[i].String()}, NodeName: ptr.To(host.Node),
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
			})
		}
		objects = append(objects, slice)
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			name := strings.ToLower(string(protocol))
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: ptr.To[int32](targetPort)})
			if i == 0 {
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: name, Protocol: protocol, Port: port, NodePort: s.nodePort})
			}
		}
	}
	return objects
}

// flows are those to all frontends of web in both families, from a pod, the node and
// a client outside.
func (n *node) flows(protocols ...lab.Protocol) []lab.Flow { return n.flowsTo(web(), protocols...) }

// flowsTo are the same to any Service.
func (n *node) flowsTo(s service, protocols ...lab.Protocol) []lab.Flow {
	var flows []lab.Flow
	for i, nodeIP := range n.host("node1").Addrs {
		for _, to := range []netip.AddrPort{
			netip.AddrPortFrom(s.clusterIPs[i], port), netip.AddrPortFrom(nodeIP, uint16(s.nodePort)), netip.AddrPortFrom(s.loadBalancerIPs[i], port),
		} {
			for _, from := range []string{"pod3", "node1", "client"} {
				for _, p := range protocols {
					flows = append(flows, lab.Flow{From: from, Protocol: p, To: to})
				}
			}
		}
	}
	return flows
}

// start starts a kube-proxy in a mode. It ends with the test at the latest.
func (n *node) start(binary, mode string) {
	n.Helper()
	n.proxy = n.startBeside(binary, mode)
}

// startBeside starts one beside another.
func (n *node) startBeside(binary, mode string, flags ...string) *process.Process {
	n.Helper()
	args := []string{"./" + binary, "--master", "http://" + apiAddress, "--kube-api-content-type", "application/json",
		"--hostname-override", "node1", "--proxy-mode", mode, "-v", "2",
		"--cluster-cidr", lab.ClusterCIDRs[0].String() + "," + lab.ClusterCIDRs[1].String(),
		// The same for all: while a virtual service gets another scheduler, the kernel
		// refuses new connections.
		"--ipvs-scheduler", "wrr",
		// IPVS is not to wait long for datagrams that do not come.
		"--ipvs-udp-timeout", "10s",
		// Changes of the limits would be seen in all namespaces.
		"--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0s", "--conntrack-tcp-timeout-close-wait", "0s"}
	if binary == ownBinary {
		args = append(args, "--control-socket", "")
	}
	p, err := process.Start(n.host("node1"), filepath.Join(n.TempDir(), "log"), append(args, flags...)...)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		if err := p.Kill(); err != nil {
			n.Error(err)
		}
		if n.Failed() {
			n.Logf("the log of %s in %s mode:\n%s", binary, mode, p.Tail())
		}
	})
	return p
}

// replace stops the kube-proxy that runs and starts another.
func (n *node) replace(binary, mode string) {
	n.Helper()
	if err := n.proxy.Stop(); err != nil {
		n.Fatal(err)
	}
	n.start(binary, mode)
}

// eventually waits until there is no error.
func (n *node) eventually(what string, try func() error) {
	n.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(200 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-n.proxy.Done:
			n.Fatalf("%s: kube-proxy has ended: %v", what, n.proxy.Err)
		default:
		}
		if time.Now().After(deadline) {
			n.report()
			n.Fatalf("%s: %v", what, err)
		}
	}
}

// report shows what is in the kernel.
func (n *node) report() {
	n.Logf("in the kernel:\n%s", n.run(`ipvsadm -Ln; ipvsadm -Lnc; ip address show dev kube-ipvs0 || true; ipset list -n
ip rule; ip route show table 51007 || true; ip -6 route show table 51007 || true
nft list ruleset; conntrack -L 2>/dev/null`))
}

// expectAnswers waits until all flows are answered by these pods, each of which answers
// at times.
func (n *node) expectAnswers(pods ...string) {
	n.Helper()
	n.expectAnswersOf(web(pods...))
}

// expectAnswersOf is the same for any Service.
func (n *node) expectAnswersOf(s service) {
	n.Helper()
	pods, flows := s.pods, n.flowsTo(s, lab.TCP, lab.UDP)
	n.eventually(fmt.Sprintf("answers of %v", pods), func() error {
		seen := map[string]bool{}
		for i, o := range n.lab.Probe(n.Context(), flows) {
			if o.Kind != lab.Answered || !slices.Contains(pods, o.By) {
				return fmt.Errorf("%v: %v", flows[i], o)
			}
			seen[o.By] = true
		}
		if len(seen) < len(pods) {
			return fmt.Errorf("only %v answered", slices.Collect(maps.Keys(seen)))
		}
		return nil
	})
}
