package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/test/cluster/apiserver"
	"sluice/test/lab"
)

// kubeadm writes an empty mode. With our image instead of upstream's it means the
// same: iptables rules, which accept connections if the policy of FORWARD is DROP,
// node ports on all addresses, and KUBE-MARK-MASQ for network plugins. An Event
// reports that the mode was not configured.
func TestEmptyModeMatchesUpstream(t *testing.T) {
	binaries, err := apiserver.Build(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	own, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"upstream": binaries.KubeProxy, "own": own} {
		t.Run(name, func(t *testing.T) {
			s := startWithoutProxy(t)
			web := s.create("web", "pod1")
			s.update("web", func(spec *corev1.ServiceSpec) {
				spec.Type = corev1.ServiceTypeNodePort
				setNodePorts(spec, nodePort)
			})
			s.proxy = s.run(path, "--config", s.kubeadmConfig(), "--hostname-override", "node1", "-v", "2")
			node := s.host("node1")
			ports := flowsTo("client", nodePort, node.Addrs[0].String(), node.Addrs[1].String(), node.Spare[0].String(), node.Spare[1].String())
			s.expect("a Service of the cluster", answered(clusterFlows(web), "pod1"), answered(ports, "pod1"))
			s.onNode("iptables -P FORWARD DROP; ip6tables -P FORWARD DROP")
			s.expect("FORWARD drops by policy", answered(ports, "pod1"))
			if name == "own" { // that of upstream 1.37.1 is lost: it comes before there is anybody to send it
				s.expectDefaultModeEvent()
			}
			if got := s.page("/proxyMode"); !strings.HasSuffix(got, "\r\n\r\niptables") {
				t.Errorf("/proxyMode says %q", got)
			}
			for _, command := range []string{"iptables-save", "ip6tables-save"} {
				if rules := s.onNode(command + " -t nat"); !strings.Contains(rules, ":KUBE-MARK-MASQ ") {
					t.Errorf("there is no KUBE-MARK-MASQ in\n%s", rules)
				}
			}
		})
	}
}

// kubeadmConfig returns the file that kubeadm writes, for this cluster.
func (s *site) kubeadmConfig() string {
	s.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy", "testdata", "kubeadm-config.conf"))
	if err != nil {
		s.Fatal(err)
	}
	kubeconfig, err := s.server.Kubeconfig(apiserver.KubeProxy)
	if err != nil {
		s.Fatal(err)
	}
	config := strings.NewReplacer(
		"/var/lib/kube-proxy/kubeconfig.conf", kubeconfig,
		"clusterCIDR: 10.244.0.0/16", fmt.Sprintf("clusterCIDR: %v,%v", lab.ClusterCIDRs[0], lab.ClusterCIDRs[1]),
		// They belong to the machine, not to the namespace.
		"maxPerCore: null", "maxPerCore: 0", "tcpCloseWaitTimeout: null", "tcpCloseWaitTimeout: 0s",
		"tcpEstablishedTimeout: null", "tcpEstablishedTimeout: 0s",
	).Replace(string(text))
	path := filepath.Join(s.TempDir(), "config.conf")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// expectDefaultModeEvent waits until an Event of the Node reports that the mode was not configured.
func (s *site) expectDefaultModeEvent() {
	s.Helper()
	s.eventually("there is an Event of the mode", func(ctx context.Context) error {
		events, err := s.client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=KubeProxyDefaultMode"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Regarding.Kind == "Node" && e.Regarding.Name == "node1" && e.Type == corev1.EventTypeWarning &&
				e.Action == "StartKubeProxy" && strings.Contains(e.Note, "iptables") && strings.Contains(e.Note, "nftables") {
				return nil
			}
		}
		return fmt.Errorf("there is none among %+v", events.Items)
	})
}

// page returns a page of the proxy's metrics server.
func (s *site) page(path string) string {
	s.Helper()
	to := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249"), Timeout: lab.DefaultTimeout}
	page, err := s.lab.Get(to, path)
	if err != nil {
		s.Fatal(err)
	}
	return page.Text
}
