//go:build linux

package lab_test

import (
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sluice/test/lab"
)

var loopbackManifests = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.1
  ports: [{port: 80, nodePort: 30080}]
` + lab.EndpointSlice("IPv4", "web", "", "pod1")

// Node ports on loopback addresses can be enabled and disabled while the proxy
// runs. Established connections stay.
func TestLoopbackFollowsConfiguration(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	dir, etc := t.TempDir(), t.TempDir()
	write(t, dir, "web.yaml", loopbackManifests, 0)
	write(t, etc, "config.yaml", liveConfig, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--config", filepath.Join(etc, "config.yaml")}})
	settle(t, p, dir, 0)
	flow := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:30080")}
	ends := func(kind lab.Kind) {
		t.Helper()
		eventually(t, func() bool { return l.Connect(t.Context(), flow).Kind == kind })
	}
	ends(lab.Refused)
	write(t, etc, "config.yaml", liveConfig+"nodePortAddresses: [primary, localhost]\n", 0)
	ends(lab.Answered)
	session, err := l.Open(flow)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if _, err := session.Ask(); err != nil {
		t.Fatal(err)
	}
	write(t, etc, "config.yaml", liveConfig+"nodePortAddresses: [primary, localhost]\nfeatureGates: {KubeProxyNFTablesLocalhostNodePorts: false}\n", 0)
	ends(lab.Refused)
	if answer, err := session.Ask(); err != nil || answer.By != "pod1" {
		t.Errorf("the connection that stood: %v, answered by %q", err, answer.By)
	}
	write(t, etc, "config.yaml", liveConfig+"nodePortAddresses: [primary, 127.0.0.1/32]\n", 0)
	ends(lab.Answered)
}

// Packets to node ports at loopback addresses where these are not served are counted while the feature gate is set.
func TestUnservedLoopbackPacketsAreCounted(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	dir, etc := t.TempDir(), t.TempDir()
	write(t, dir, "web.yaml", loopbackManifests, 0)
	write(t, etc, "config.yaml", liveConfig, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--config", filepath.Join(etc, "config.yaml")}})
	settle(t, p, dir, 0)
	flow := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:30080")}
	counted := func() int {
		const name = "\nkubeproxy_nftables_localhost_nodeport_rejected_packets_total{ip_family=\"IPv4\",protocol=\"TCP\"} "
		_, rest, _ := strings.Cut(metricsPage(l, "/metrics"), name)
		number, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(number)
		if err != nil {
			return -1
		}
		return n
	}
	grows := func() {
		t.Helper()
		before := -1
		eventually(t, func() bool { before = counted(); return before >= 0 })
		eventually(t, func() bool {
			if kind := l.Connect(t.Context(), flow).Kind; kind != lab.Refused {
				t.Errorf("a connection to %v: %v", flow.To, kind)
			}
			return counted() > before
		})
	}
	write(t, etc, "config.yaml", liveConfig+"featureGates: {KubeProxyNFTablesLocalhostNodePorts: true}\n", 0)
	grows()
	// Another program deletes the table, and the count goes on.
	node, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Run(t.Context(), lab.Command{Args: []string{"nft", "delete", "table", "ip", "sluice-loopback"}}); err != nil {
		t.Fatal(err)
	}
	grows()
}
