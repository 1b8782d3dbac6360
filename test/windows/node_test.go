//go:build linux

package windows

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
	"sluice/internal/testkit"
	"sluice/test/windows/wine"
)

// lab is a machine and the program under test.
type lab struct {
	*wine.Machine
	exe string
}

func newLab(t *testing.T) *lab {
	testkit.NotShort(t, "it starts wine")
	m := wine.New(t)
	return &lab{m, m.KubeProxy()}
}

// node is a node with manifests, on which proxies run.
type node struct {
	*wine.Node
	exe       string
	manifests string
	flags     []string
}

// newNode returns a node with a network, in which 10.244.1.5 is a pod, and a stranger's load balancer.
func (l *lab) newNode(t *testing.T, networkType, release string) *node {
	t.Helper()
	n := &node{Node: l.For(t).NewNode(networkType, release, netip.MustParseAddr("10.244.1.5")), exe: l.exe}
	id := n.HNS.State().Endpoints[0]["ID"]
	n.Create(hns.LoadBalancers, 0, fakehns.Document{"FrontendVIPs": []string{"203.0.113.99"}, "HostComputeEndpoints": []any{id},
		"PortMappings": []any{fakehns.Document{"Protocol": 6, "InternalPort": 80, "ExternalPort": 80}}})
	n.HNS.DropHandles()
	n.manifests = n.Path(n.Label + "-manifests")
	if err := os.Mkdir(n.manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	n.flags = []string{"--manifests=" + wine.Native(n.manifests), "--hostname-override=node1", "--network-name=" + wine.Network, "--page=false", "--control-socket="}
	if networkType == hns.Overlay {
		n.flags = append(n.flags, "--source-vip=10.244.1.250")
	}
	return n
}

// write writes a manifest, as an editor does.
func (n *node) write(name, text string) {
	n.Helper()
	path := filepath.Join(n.manifests, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path+".new", []byte(text), 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		n.Fatal(err)
	}
}

// proxy starts a proxy, on ports of its own.
func (n *node) proxy(flags ...string) *wine.Proxy {
	n.Helper()
	return n.Run(n.exe, slices.Concat(n.flags, []string{"--healthz-bind-address=" + n.FreeAddress(), "--metrics-bind-address=" + n.FreeAddress()}, flags)...)
}

const stranger = "balancer 203.0.113.99 protocol 6 port 80 to 10.244.1.5 port 80 flags 0 mapping 0 distribution 0 source -"

// has returns nil if HNS has these lines, and the stranger's.
func (n *node) has(lines []string) error {
	want := strings.Join(slices.Sorted(slices.Values(append(slices.Clone(lines), stranger, "endpoint local 10.244.1.5"))), "\n")
	if got := strings.TrimSpace(n.HNS.State().Summary()); got != want {
		return fmt.Errorf("HNS has\n%s\nwant\n%s", got, want)
	}
	return nil
}

// holds waits until HNS has these lines, and the stranger's.
func (n *node) holds(lines ...string) {
	n.Helper()
	testkit.Eventually(n, func() error { return n.has(lines) })
	if s := n.HNS.State(); len(s.Violations) > 0 {
		n.Errorf("violations: %q", s.Violations)
	}
}

// settled waits until no call is under way.
func (n *node) settled() {
	n.Helper()
	testkit.Until(n, func() bool { return n.HNS.State().OpenHandles == 0 })
}

// web returns a Service with these endpoints; those in 10.244.1.0/24 are on the node.
func web(ips ...string) string {
	var endpoints strings.Builder
	for _, ip := range ips {
		node := "node2"
		if strings.HasPrefix(ip, "10.244.1.") {
			node = "node1"
		}
		fmt.Fprintf(&endpoints, "\n- {addresses: [%s], nodeName: %s, conditions: {ready: true}}", ip, node)
	}
	return `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.80
  clusterIPs: [10.96.0.80]
  externalIPs: [198.51.100.7]
  sessionAffinity: ClientIP
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080}, {name: odd, protocol: SCTP, port: 99, nodePort: 30099}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: odd, protocol: SCTP, port: 99}]
endpoints:` + endpoints.String() + "\n"
}

// served are the lines about web on a bridge with these endpoints.
func served(ips ...string) []string {
	lines := balancers(strings.Join(ips, " "), 0, "-")
	for _, ip := range ips {
		if !strings.HasPrefix(ip, "10.244.1.") {
			lines = append(lines, "endpoint remote "+ip)
		}
	}
	return lines
}

// balancers are the lines about the load balancers of web.
func balancers(to string, dsr int, source string) []string {
	line := func(vip string, port, flags, mapping int) string {
		return fmt.Sprintf("balancer %s protocol 6 port %d to %s port 8080 flags %d mapping %d distribution 2 source %s", vip, port, to, flags, mapping, source)
	}
	return []string{line("10.96.0.80", 80, dsr, 0), line("198.51.100.7", 80, 0, 16), line("*", 30080, 0, 18)}
}
